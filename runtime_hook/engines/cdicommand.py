"""Runs ``grapnel-hook cdi``, and finds the CDI file that ``grapnel-hook refresh`` keeps up to date."""

from __future__ import annotations

import os

from runtime_hook.base.jsonfast import dumps
from runtime_hook.engines.cdi import render_cdi
from runtime_hook.engines.cdifile import CDI_PATH, options_for, write_cdi
from runtime_hook.engines.entry import HOOK_PATH
from runtime_hook.host.hosttree import HostTree
from runtime_hook.host.store import current_inventory
from runtime_hook.inputs.config import INVENTORY_PATH, load_config

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from runtime_hook.host.inventory import Inventory


def add_cdi_options(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("--output", metavar="FILE", help=f"where to write it, - for here (default: {CDI_PATH})")
    parser.add_argument("--format", choices=["json"], default="json", help="the one format; YAML readers take it")
    parser.add_argument("--config", metavar="FILE", default="", help="hook configuration instead of the node's own")
    parser.add_argument("--root", metavar="DIR", default="/", help="where the host's driver tree is seen")
    parser.add_argument("--hook", metavar="FILE", default=HOOK_PATH, help="the hook that engines are to start")


def describe(options: argparse.Namespace) -> Inventory:
    """Write or show the CDI file; return the inventory that it was made from."""
    tree = HostTree(options.root)
    inventory = _inventory_for_cdi(options, tree)
    hook_options = options_for(tree, options.config)
    if options.output == "-":
        print(dumps(render_cdi(inventory, tree.host_path, options.hook, hook_options)), end="")
        return inventory
    path = options.output or _cdi_path(tree)
    count = write_cdi(path, inventory, tree, hook_options, options.hook)
    print(f"{path}: {count} names of devices, {len(inventory.gpus)} GPUs")
    return inventory


def _inventory_for_cdi(options: argparse.Namespace, tree: HostTree) -> Inventory:
    if options.config or tree.root == "/":
        path = (load_config(options.config) if options.config else load_config()).inventory_path
    else:
        path = tree.host_path(INVENTORY_PATH)
    return current_inventory(path, tree, write=False)


def _cdi_path(tree: HostTree) -> str:
    """Return the configured path on the running host; below another root the usual path there."""
    return (load_config().cdi_path or CDI_PATH) if tree.root == "/" else tree.host_path(CDI_PATH)


def kept_path(tree: HostTree) -> str:
    """Return the CDI file to keep up to date: the configured one, or an existing one; "" without either."""
    path = _cdi_path(tree)
    is_wanted = tree.root == "/" and bool(load_config().cdi_path)
    return path if is_wanted or os.path.exists(path) else ""
