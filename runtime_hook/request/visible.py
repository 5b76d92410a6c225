"""Names of GPUs, as ``NVIDIA_VISIBLE_DEVICES`` and allocations give them, held against the inventory. Pure."""

from __future__ import annotations

from runtime_hook.errors import RequestError, one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.host.inventory import Gpu

_PCI_PARTS = 3
_MAX_ELEMENTS = 4096


def select_visible(visible: str, gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Return the GPUs that ``NVIDIA_VISIBLE_DEVICES`` names, each once, in the order of the inventory.

    The first of the words ``all`` and ``none`` in the list decides; empty elements are skipped. An element is an
    index, a UUID (any case) or a PCI address (any padding). Whatever matches no GPU refuses the container.
    """
    words = [word for word in visible.split(",") if word]
    if len(words) > _MAX_ELEMENTS:
        raise RequestError(f"NVIDIA_VISIBLE_DEVICES lists {len(words)} devices", f"{_MAX_ELEMENTS} are allowed")
    for word in words:
        if word.lower() == "all":
            return gpus
        if word.lower() == "none":
            return ()
    return select_named(tuple(words), gpus)


def select_named(names: tuple[str, ...], gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Return the GPUs with these names, each once, in the order of the inventory."""
    by_name = {name: gpu for gpu in gpus for name in _names_of(gpu)}
    chosen = set()
    for name in names:
        gpu = by_name.get(_normalise(name))
        if gpu is None:
            raise RequestError(f"unknown GPU {one_line(name, 100)}", _hint_for(name, gpus))
        chosen.add(gpu.index)
    return tuple(gpu for gpu in gpus if gpu.index in chosen)


def _names_of(gpu: Gpu) -> tuple[str, str, str]:
    return str(gpu.index), gpu.uuid.lower(), _normalise(gpu.pci_address)


def _normalise(name: str) -> str:
    """Return a name in the spelling of the table: lower case, PCI addresses with a domain of eight digits."""
    lowered = name.lower()
    parts = lowered.split(":")
    if "." not in parts[-1] or not 1 < len(parts) <= _PCI_PARTS:
        return lowered
    return ":".join([parts[0].zfill(8) if len(parts) == _PCI_PARTS else "0" * 8, *parts[-2:]])


def _hint_for(name: str, gpus: tuple[Gpu, ...]) -> str:
    if name.startswith("MIG-") or (":" in name and "." not in name):
        return "MIG devices cannot be given yet"
    return f"this node has {', '.join(gpu.uuid for gpu in gpus) or 'no GPU'}"
