"""``python3 -m lab cluster VERB [--name NAME]``: a cluster from a shell, that of ``GRAPNEL_LAB_CLUSTER`` by default.

Exit status: 0 done, 1 it failed (with the reason), 2 usage; ``status`` exits with 1 if a component is not running.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from lab.cluster import controller, tour
from lab.cluster.cluster import Cluster
from lab.cluster.project import (
    NAME_VARIABLE,
    apply_project,
    render_invitation,
    render_stack_invitation,
    write_project,
    write_stack,
)
from lab.cluster.spec import DEFAULT, WITH_CRIO
from lab.cluster.status import render
from lab.machine.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DEFAULT_NAME = "stage"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb."""
    options = make_parser().parse_args(arguments)
    verb: Callable[[Cluster, argparse.Namespace], int | None] = options.verb
    try:
        return verb(Cluster(options.name, report=Stopwatch().report), options) or 0
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def make_parser() -> argparse.ArgumentParser:
    """Describe the verbs; one function of this module each."""
    parser = argparse.ArgumentParser(prog="lab cluster", description="a real Kubernetes with booted nodes")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    table: tuple[tuple[str, Callable[[Cluster, argparse.Namespace], int | None], str], ...] = (
        ("up", up, "start a cluster, or whatever of it is not running, and wait until every node is Ready"),
        ("apply", apply, "make its nodes GPU nodes: grapnel apply with the lab's declaration"),
        ("install", install, "have grapnel's controller make its nodes GPU nodes: the chart, and a GpuStack"),
        ("fail", fail, "let a node's last GPU be of no use to a driver, so that it goes back to the one before"),
        ("heal", heal, "end that"),
        ("status", status, "show control plane, nodes and pods"),
        ("down", down, "remove a cluster and everything that belongs to it"),
    )
    default = os.environ.get(NAME_VARIABLE) or DEFAULT_NAME
    for name, verb, text in table:
        added = verbs.add_parser(name, help=text)
        added.add_argument("--name", default=default, help=f"of the cluster and its site (default {default})")
        added.set_defaults(verb=verb)
        if name in ("apply", "install"):
            added.add_argument("--folder", type=Path, help="of what is declared (default: with the cluster)")
        if name == "install":
            added.add_argument("--image", type=Path, default=controller.IMAGE, help="of grapnel (default: %(default)s)")
        if name == "up":
            added.add_argument("--crio", action="store_true", help="with a fourth node, whose engine is CRI-O")
        if name in ("fail", "heal"):
            added.add_argument("node")
        if name == "fail":
            added.add_argument("driver", help="the version that finds no memory there")
    return parser


class Stopwatch:
    """Prints phases with the elapsed seconds."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def report(self, phase: str) -> None:
        """Print a finished phase."""
        print(f"[{time.monotonic() - self._began:6.1f}s] {phase}", flush=True)


def up(cluster: Cluster, options: argparse.Namespace) -> None:
    """Start a cluster."""
    cluster.up(WITH_CRIO if options.crio else DEFAULT)
    print(f"export KUBECONFIG={cluster.kubeconfig}")


def apply(cluster: Cluster, options: argparse.Namespace) -> None:
    """Make the nodes GPU nodes; print commands to try."""
    folder = (options.folder or cluster.folder / "project").absolute()
    write_project(cluster, folder)
    apply_project(cluster, folder)
    print(f"\nthe cluster is ready; to try it:\n\n{render_invitation(cluster, folder)}")


def install(cluster: Cluster, options: argparse.Namespace) -> None:
    """Install the controller, and have it make the nodes GPU nodes; print commands to try."""
    folder = (options.folder or cluster.folder / "stack").absolute()
    watch = Stopwatch()
    controller.install(cluster, options.image, controller.pool(cluster))
    watch.report("the chart is installed")
    controller.apply_stack(cluster, write_stack(cluster, folder))
    watch.report("its GpuStack is as declared")
    print(f"\nthe cluster is ready; to try it:\n\n{render_stack_invitation(cluster, folder)}")


def fail(cluster: Cluster, options: argparse.Namespace) -> None:
    """Break a GPU of a node for one driver."""
    tour.fail(cluster.site.node(options.node), options.driver)
    print(f"{options.node}: driver {options.driver} finds no memory on its last GPU (lab cluster heal {options.node})")


def heal(cluster: Cluster, options: argparse.Namespace) -> None:
    """Mend the GPUs of a node."""
    tour.heal(cluster.site.node(options.node))


def status(cluster: Cluster, _: argparse.Namespace) -> int:
    """Show a cluster; exit with 1 if a component is not running."""
    seen = cluster.status()
    print(render(seen))
    is_whole = all(process.pid for process in seen.processes) and all(node.is_ready for node in seen.nodes)
    return 0 if is_whole else 1


def down(cluster: Cluster, _: argparse.Namespace) -> None:
    """Remove a cluster."""
    cluster.down()


if __name__ == "__main__":
    sys.exit(main())
