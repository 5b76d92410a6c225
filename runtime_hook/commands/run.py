"""Runs the commands for people and for other components: explain, refresh, cdi, pack. Not on the hook's path."""

from __future__ import annotations

import argparse
import sys

from runtime_hook import VERSION
from runtime_hook.base.errors import EXIT_OK, EXIT_USAGE, InventoryError, ReleaseError
from runtime_hook.base.jsonfast import dumps
from runtime_hook.base.reading import describe_error
from runtime_hook.commands.explain import Sources, explain
from runtime_hook.engines.cdicommand import add_cdi_options, describe, kept_path
from runtime_hook.engines.cdifile import remake_cdi
from runtime_hook.host.hosttree import HostTree
from runtime_hook.host.inventory import missing_node
from runtime_hook.host.store import refresh
from runtime_hook.inputs.config import INVENTORY_PATH, load_config
from runtime_hook.release.packing import find_release, pack_if_missing, write_pack
from runtime_hook.request.grant import check_versions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from runtime_hook.host.inventory import Inventory


def command(arguments: Sequence[str]) -> int:
    """Parse the command line and run the command."""
    parser = _parser()
    try:
        options = parser.parse_args(arguments)
    except SystemExit as stop:
        return EXIT_OK if not stop.code else EXIT_USAGE
    if options.command == "explain":
        return _explain(options)
    if options.command == "pack":
        return _pack()
    if options.command == "cdi":
        _warn(describe(options))
        return EXIT_OK
    return _refresh(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="grapnel-hook",
        description="Gives a container the host's NVIDIA driver files when it was given a GPU.",
    )
    parser.add_argument("--version", action="version", version=f"grapnel-hook {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("prestart", help="the OCI hook itself: container state on stdin", add_help=False)
    commands.add_parser("limit", help="limit a container's memory for a claim: state on stdin", add_help=False)
    _add_explain(commands.add_parser("explain", help="say what a container would get, and why"))
    _add_refresh(commands.add_parser("refresh", help="rebuild the host driver inventory"))
    commands.add_parser("pack", help="pack this release into one file, which starts faster")
    commands.add_parser("runtime", help="stand in for runc or crun (grapnel-runtime does)", add_help=False)
    add_cdi_options(commands.add_parser("cdi", help="describe the GPUs for engines that take devices by name (CDI)"))
    return parser


def _add_explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="BUNDLE|CONFIG.json")
    parser.add_argument("--inventory", metavar="FILE", help="inventory to use instead of the node's own")
    parser.add_argument(
        "--policy", "--config", metavar="FILE", dest="policy", help="hook configuration instead of the node's own"
    )
    parser.add_argument("--owner", metavar="UID", type=int, help="the user who runs a rootless engine")
    parser.add_argument("--root", metavar="DIR", default="/", help="where the host's driver tree is seen")


def _add_refresh(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--root", metavar="DIR", default="/", help="where the host's driver tree is seen")
    parser.add_argument("--output", metavar="FILE", help="inventory to write instead of the node's own")


def _explain(options: argparse.Namespace) -> int:
    sources = Sources(options.target, options.inventory, options.policy, options.root, options.owner)
    print(dumps(explain(sources)), end="")
    return EXIT_OK


def _refresh(options: argparse.Namespace) -> int:
    pack_if_missing(sys.argv[0])
    tree = HostTree(options.root)
    path = options.output or _inventory_path(tree)
    cdi_path = "" if options.output else kept_path(tree)
    try:
        inventory = refresh(path, tree)
    except InventoryError:
        remake_cdi(cdi_path, None, tree)
        raise
    print(
        f"{path}: driver {inventory.driver_version}, {len(inventory.gpus)} GPUs, "
        f"{len({library.path for library in inventory.libraries})} libraries, {len(inventory.binaries)} programs"
    )
    _warn(inventory)
    remake_cdi(cdi_path, inventory, tree)
    return EXIT_OK


def _pack() -> int:
    folder = find_release(sys.argv[0])
    if not folder:
        raise ReleaseError(f"{sys.argv[0]} is no installed release", "a checkout runs from its sources")
    try:
        print(write_pack(folder))
    except OSError as reason:
        raise ReleaseError(f"cannot pack {folder}: {describe_error(reason)}") from reason
    return EXIT_OK


def _inventory_path(tree: HostTree) -> str:
    """Return the configured path on the running host; below another root the usual path there."""
    return load_config().inventory_path if tree.root == "/" else tree.host_path(INVENTORY_PATH)


def _warn(inventory: Inventory) -> None:
    """Name what will refuse containers."""
    try:
        check_versions(inventory)
    except InventoryError as mismatch:
        print(f"grapnel-hook: {mismatch}", file=sys.stderr)
    for node in inventory.stale:
        print(f"grapnel-hook: {missing_node(inventory, node.path)}", file=sys.stderr)
