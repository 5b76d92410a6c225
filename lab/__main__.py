"""``python3 -m lab VERB``: sites and nodes, base trees and package folders from a shell.

Exit status: 0 done, 1 it failed (with the reason), 2 usage; ``sh`` exits with the status of the command on the node.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from typing import TYPE_CHECKING

from lab import bundle, golang, sources, trees
from lab.cluster import __main__ as cluster
from lab.machine.errors import LabError, SiteError
from lab.nodes import NodeSpec, Site, known_sites, lost_sites
from lab.nvml.models import MODELS
from lab.sources import BASE_SUITE, SYSTEMS
from lab.trees import SUITES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DEFAULT_SITE = "demo"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["cluster"]:
        return cluster.main(words[1:])
    options = make_parser().parse_args(words)
    verb: Callable[[argparse.Namespace], int | None] = options.verb
    try:
        return verb(options) or 0
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def make_parser() -> argparse.ArgumentParser:
    """Describe the verbs; one function of this module each."""
    parser = argparse.ArgumentParser(prog="lab", description="simulated GPU machines")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    _add_node_verbs(verbs)
    _add_site_verbs(verbs)
    verbs.add_parser("cluster", help="a real Kubernetes of nodes: see lab cluster --help")  # main hands it over
    for name, verb, text in (
        ("tree", tree, "build a suite's base tree unless the cache has it"),
        ("bundle", package_folder, "download a suite's package folder unless the cache has it"),
        ("layer", builder_layer, "install what a suite's builder nodes compile with unless the cache has it"),
    ):
        added = verbs.add_parser(name, help=text)
        added.add_argument("suite", choices=sorted(SUITES))
        added.set_defaults(verb=verb)
    added = verbs.add_parser("sources", help="build a system's package sources unless the cache has them")
    added.add_argument("system", choices=sorted(SYSTEMS))
    added.set_defaults(verb=package_sources)
    added = verbs.add_parser("golang", help="build Kubernetes or containerd from Go modules unless the cache has it")
    added.add_argument("program", choices=sorted(golang.PROGRAMS))
    added.set_defaults(verb=go_program)
    return parser


def _add_node_verbs(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    table: tuple[tuple[str, Callable[[argparse.Namespace], int | None], str], ...] = (
        ("up", up, "create or start a node, and wait until it is ready"),
        ("down", down, "power a node off; its disk stays"),
        ("remove", remove, "delete a node"),
        ("reboot", reboot, "reboot a node and wait until it is ready"),
        ("crash", crash, "cut a node's power"),
        ("console", console, "print a node's console log"),
        ("gpus", gpus, "show a node's GPUs, or change what NVML reports about them (show, set, xid, …)"),
        ("sh", shell, "run a command on a node, or log in"),
    )
    for name, verb, text in table:
        added = verbs.add_parser(name, help=text)
        added.add_argument("--site", default=DEFAULT_SITE)
        added.add_argument("node")
        added.set_defaults(verb=verb)
        if name == "up":
            added.add_argument("--suite", choices=sorted(SUITES))
            added.add_argument("--gpus", type=int, metavar="N")
            added.add_argument("--model", choices=sorted(MODELS))
            added.add_argument("--driver-module", metavar="VERSION", help="kernel module loaded at boot")
            added.add_argument("--system", choices=sorted(SYSTEMS), help="another distribution than Debian")
            added.add_argument(
                "--bind",
                action="append",
                type=_bind,
                metavar="SOURCE:PLACE",
                help="have a file or folder of this machine on the node, read-only; may be repeated",
            )
            added.add_argument("--builder", action="store_true", default=None, help="with dkms, compiler and headers")
        if name == "gpus":
            added.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of lab.nvml.tool; default: show")
        if name == "sh":
            added.add_argument("command", nargs=argparse.REMAINDER)


def _add_site_verbs(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    table: tuple[tuple[str, Callable[[argparse.Namespace], int | None], str], ...] = (
        ("destroy", destroy, "remove a site and everything that belongs to it"),
        ("inventory", inventory, "print the path of a site's Ansible inventory"),
    )
    for name, verb, text in table:
        added = verbs.add_parser(name, help=text)
        added.add_argument("--site", default=DEFAULT_SITE)
        added.set_defaults(verb=verb)
    verbs.add_parser("status", help="list sites and nodes").set_defaults(verb=status)


def up(options: argparse.Namespace) -> None:
    """Create or start a node; an existing node can be started without repeating its specification."""
    site = Site(options.site)
    asked = {key: getattr(options, key) for key in ("suite", "gpus", "model", "driver_module", "builder", "system")}
    given = {key: value for key, value in asked.items() if value is not None}
    if options.bind:
        given["binds"] = tuple(options.bind)
    if not given and options.node in site.node_names():
        node = site.start(options.node)
    else:
        if "system" in given:
            given.setdefault("suite", BASE_SUITE)
        node = site.up(NodeSpec(options.node, **given))
    print(f"{node.name} {node.address} is ready (site {site.name}, inventory {site.inventory_path})")


def _bind(text: str) -> tuple[str, str]:
    """Return what is to be bound, and where."""
    source, _, place = text.partition(":")
    if not (source.startswith("/") and place.startswith("/")):
        raise argparse.ArgumentTypeError(f"{text!r} is not SOURCE:PLACE, two absolute paths")
    return source, place


def down(options: argparse.Namespace) -> None:
    """Power a node off."""
    Site(options.site).down(options.node)


def remove(options: argparse.Namespace) -> None:
    """Delete a node."""
    Site(options.site).remove(options.node)


def reboot(options: argparse.Namespace) -> None:
    """Reboot a node."""
    Site(options.site).reboot(options.node)


def crash(options: argparse.Namespace) -> None:
    """Cut a node's power."""
    Site(options.site).crash(options.node)


def console(options: argparse.Namespace) -> None:
    """Print a node's console log."""
    log = Site(options.site).node(options.node).machine.console
    print(log.read_text(errors="replace"), end="")


def shell(options: argparse.Namespace) -> int:
    """Run a command on a node with this terminal, or log in."""
    node = Site(options.site).node(options.node)
    argv = node.access.argv(node.address, options.command)
    return subprocess.run(argv if options.command else [*argv[:-1], "-t"], check=False).returncode


def gpus(options: argparse.Namespace) -> int:
    """Run the simulated NVML's command line with the library of the node."""
    library = Site(options.site).node(options.node).nvml_library
    command = [sys.executable, "-m", "lab.nvml.tool", str(library), *(options.arguments or ["show", "gpu"])]
    return subprocess.run(command, check=False).returncode


def destroy(options: argparse.Namespace) -> None:
    """Remove a site."""
    Site(options.site).destroy()


def inventory(options: argparse.Namespace) -> None:
    """Print the path of a site's inventory."""
    path = Site(options.site).inventory_path
    if not path.exists():
        raise SiteError(f"site {options.site} has no node yet", hint="python3 -m lab up n1")
    print(path)


def status(_: argparse.Namespace) -> None:
    """List sites and nodes, and leftovers of sites whose folder is gone."""
    for site in known_sites():
        print(f"site {site.name} ({site.folder})")
        try:
            print_nodes(site)
        except SiteError as error:  # made by another version of the lab
            print(f"  {error} (python3 -m lab destroy --site {site.name})")
    for bridge, folder in lost_sites().items():
        print(f"left over: {bridge} of {folder} (python3 -m lab destroy --site {bridge.removeprefix('gn-')})")


def print_nodes(site: Site) -> None:
    """Print a line per node."""
    for node in site.status():
        state = "running" if node.is_running else "stopped"
        what = f"{node.suite:9} {node.gpus} GPUs, module {node.driver_module or 'none'}"
        print(f"  {node.name:12} {state:8} {node.address:15} {what}")


def tree(options: argparse.Namespace) -> None:
    """Build a base tree."""
    print(trees.ensure(options.suite))


def package_folder(options: argparse.Namespace) -> None:
    """Build a package folder."""
    print(bundle.ensure(options.suite).folder)


def builder_layer(options: argparse.Namespace) -> None:
    """Build the layer of nodes with dkms, compiler and headers."""
    print(bundle.ensure_layer(options.suite, bundle.BUILDER_PACKAGES))


def package_sources(options: argparse.Namespace) -> None:
    """Build the package sources of a distribution other than Debian."""
    print(sources.ensure(options.system).repositories)


def go_program(options: argparse.Namespace) -> None:
    """Build a Go program; print its folder to stdout and the progress to stderr."""
    print(golang.PROGRAMS[options.program](say=lambda line: print(line, file=sys.stderr, flush=True)))


if __name__ == "__main__":
    sys.exit(main())
