"""Keeps the inventory on the host: reads it, detects that it is stale, rebuilds it, replaces it atomically."""

from __future__ import annotations

import os

from runtime_hook.base.errors import InventoryError
from runtime_hook.base.jsonfast import dumps, loads
from runtime_hook.base.reading import read_regular, read_trusted
from runtime_hook.base.writing import remove_file, replace_file
from runtime_hook.host.fingerprint import is_fresh
from runtime_hook.host.inventory import parse_inventory, render_inventory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.host.hosttree import HostTree
    from runtime_hook.host.inventory import Inventory

_LIMIT_BYTES = 4 << 20


def read_inventory(path: str, *, trusted: bool) -> Inventory | None:
    """Read an inventory file; None where there is none. InventoryError when it is damaged or not root's."""
    read = read_trusted if trusted else read_regular
    try:
        return parse_inventory(loads(read(path, _LIMIT_BYTES, InventoryError)), path)
    except FileNotFoundError:
        return None
    except ValueError as reason:
        raise InventoryError(f"{path}: {reason}", "grapnel-hook refresh rebuilds it") from reason


def current_inventory(path: str, tree: HostTree, *, write: bool) -> Inventory:
    """Return an inventory that is true now: the stored one, or a new one, which is stored where that is allowed.

    A stored file that is damaged, or that others could have written, counts as missing.
    """
    try:
        stored = read_inventory(path, trusted=True)
    except InventoryError:
        stored = None
    if stored is not None and is_fresh(stored, tree):
        return stored
    inventory = _discover(tree, path)
    if write:
        _store_if_possible(inventory, path)
    return inventory


def refresh(path: str, tree: HostTree) -> Inventory:
    """Rebuild the inventory; on a host without a driver the old one is removed and InventoryError raised."""
    try:
        inventory = _discover(tree, path)
    except InventoryError:
        remove_file(path, InventoryError)
        raise
    write_inventory(inventory, path)
    return inventory


def write_inventory(inventory: Inventory, path: str) -> None:
    """Replace the inventory in one step. Writers at the same time do not disturb each other."""
    replace_file(path, dumps(render_inventory(inventory)), InventoryError)


def _store_if_possible(inventory: Inventory, path: str) -> None:
    try:
        write_inventory(inventory, path)
    except InventoryError:
        return  # the inventory in memory is as good; the next start tries again


def _discover(tree: HostTree, path: str) -> Inventory:
    """Scan the host; the node daemon keeps its facts beside the inventory."""
    from runtime_hook.host.discovery import discover
    from runtime_hook.host.nvmlfacts import FACTS_NAME

    return discover(tree, os.path.join(os.path.dirname(path), FACTS_NAME))
