"""Maintains the CDI file: replaces it atomically, avoids conflicts with other files, removes it."""

from __future__ import annotations

import os

from runtime_hook.base.errors import HookError, InventoryError
from runtime_hook.base.jsonfast import dumps, loads
from runtime_hook.base.reading import read_regular
from runtime_hook.base.writing import remove_file, replace_file
from runtime_hook.engines.cdi import KIND, render_cdi
from runtime_hook.engines.entry import HOOK_PATH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from runtime_hook.host.hosttree import HostTree
    from runtime_hook.host.inventory import Inventory

# Of the two folders that engines read, the one that a reboot empties. NVIDIA's tools write nvidia.yaml there.
CDI_PATH = "/var/run/cdi/grapnel.json"
_LIMIT_BYTES = 4 << 20
_SUFFIXES = (".json", ".yaml")


class CdiError(HookError):
    """The CDI file cannot be written, or would not count."""


def write_cdi(
    path: str, inventory: Inventory, tree: HostTree, options: Sequence[str] = (), hook: str = HOOK_PATH
) -> int:
    """Write the file and return how many devices it names; a failure leaves what was there.

    CdiError when another file of the same folder names devices of the same kind: engines take neither then
    (CDI specification, "conflict"). A file of the other folder hides ours or is hidden, as the engine's order has it.
    """
    document = render_cdi(inventory, tree.host_path, hook, options)
    others = files_of_kind(os.path.dirname(path) or ".", besides=os.path.basename(path))
    if others:
        raise CdiError(
            f"{others[0]} names devices of {KIND}, too, and engines refuse devices that two files of one folder name",
            "remove it, and what writes it (systemctl disable --now nvidia-cdi-refresh.path), or choose --output",
        )
    replace_file(os.path.abspath(path), dumps(document), CdiError)
    devices = document["devices"]
    assert isinstance(devices, list)  # as rendered
    return len(devices)


def remake_cdi(path: str, inventory: Inventory | None, tree: HostTree) -> None:
    """Bring the file in line with the host: rewritten, or removed where there is no GPU; "" stands for no file."""
    if not path:
        return
    try:
        if inventory is not None:
            write_cdi(path, inventory, tree, options_for(tree))
            return
    except InventoryError:
        pass
    remove_file(path, CdiError)


def options_for(tree: HostTree, config_path: str = "") -> tuple[str, ...]:
    """Return what the hook must be told to see the same host and the same configuration."""
    root = () if tree.root == "/" else ("--root", tree.root)
    return (*(("--config", config_path) if config_path else ()), *root)


def files_of_kind(folder: str, besides: str = "") -> list[str]:
    """Return the CDI files of a folder that name devices of our kind, by name."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    paths = [os.path.join(folder, name) for name in names if name.endswith(_SUFFIXES) and name != besides]
    return [path for path in paths if _kind_of(path) == KIND]


def _kind_of(path: str) -> str:
    """Return a CDI file's kind, "" when it has none; of YAML the top-level line ``kind:`` is read, nothing else."""
    try:
        data = read_regular(path, _LIMIT_BYTES, CdiError)
    except (HookError, FileNotFoundError):
        return ""
    try:
        content = loads(data)
    except ValueError:
        return _kind_of_yaml(data)
    kind = content.get("kind") if isinstance(content, dict) else None
    return kind if isinstance(kind, str) else ""


def _kind_of_yaml(data: bytes) -> str:
    for line in data.decode("utf-8", "replace").splitlines():
        key, _, text = line.partition(":")
        if key.strip("\"'") == "kind":
            return text.partition("#")[0].strip().strip("\"'")
    return ""
