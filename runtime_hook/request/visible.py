"""Resolves names of GPUs and MIG devices, as requests and allocations use them, by the inventory. Pure.

Forms: an index, ``GPU-<uuid>``, a PCI address in any padding, ``<GPU index>:<MIG index>``, ``MIG-<uuid>``,
``MIG-GPU-<uuid>/<GPU instance>/<compute instance>``, each also as CDI name ``nvidia.com/gpu=<form>``. Case does not
count. Source: NVIDIA's libnvidia-container, ``src/cli/common.c``, and its toolkit for CDI names.
"""

from __future__ import annotations

from runtime_hook.base.errors import RequestError, one_line
from runtime_hook.base.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.host.inventory import Gpu, Inventory, MigDevice

CDI_KINDS = ("nvidia.com/gpu", "runtime.nvidia.com/gpu")
_PCI_PARTS = 3
_MAX_ELEMENTS = 4096
_MAX_NAME = 256


@value
class Selection:
    """Chosen devices, each once, in the order of the inventory; ``gpus`` are given whole."""

    gpus: tuple[Gpu, ...] = ()
    mig: tuple[MigDevice, ...] = ()


def select_visible(names: tuple[str, ...], inventory: Inventory) -> Selection:
    """Return the devices that a request names.

    The first of the words ``all`` and ``none`` in the list decides. ``all`` gives every GPU and every MIG device.
    Whatever matches nothing refuses the container.
    """
    if len(names) > _MAX_ELEMENTS:
        raise RequestError(f"the request lists {len(names)} devices", f"{_MAX_ELEMENTS} are allowed")
    plain = tuple(_without_kind(name) for name in names)
    for name in plain:
        if name.lower() == "all":
            return Selection(inventory.gpus, inventory.mig)
        if name.lower() == "none":
            return Selection()
    return select_named(plain, inventory)


def select_named(names: tuple[str, ...], inventory: Inventory) -> Selection:
    """Return the devices with these names."""
    by_name: dict[str, str | MigDevice] = {name: gpu.uuid for gpu in inventory.gpus for name in _names_of(gpu)}
    if inventory.mig:
        indices = {gpu.uuid: gpu.index for gpu in inventory.gpus}
        by_name.update((name, mig) for mig in inventory.mig for name in _names_of_mig(mig, indices))
    chosen: set[str | MigDevice] = set()
    for name in names:
        spelled = _normalise(name)
        found = by_name.get(spelled) if spelled else None
        if found is None:
            raise RequestError(f"unknown GPU {one_line(name, 100)}", _hint_for(inventory))
        chosen.add(found)
    return Selection(
        tuple(gpu for gpu in inventory.gpus if gpu.uuid in chosen), tuple(mig for mig in inventory.mig if mig in chosen)
    )


def name_of_mig(mig: MigDevice) -> str:
    """Return the name by which a MIG device is reported: its UUID, or its place where that is not known."""
    return mig.uuid or f"MIG-{mig.gpu_uuid}/{mig.gpu_instance}/{mig.compute_instance}"


def _names_of(gpu: Gpu) -> tuple[str, str, str]:
    return str(gpu.index), gpu.uuid.lower(), _normalise(gpu.pci_address)


def _names_of_mig(mig: MigDevice, indices: dict[str, int]) -> list[str]:
    names = [f"mig-{mig.gpu_uuid}/{mig.gpu_instance}/{mig.compute_instance}".lower()]
    if mig.uuid:
        names.append(mig.uuid.lower())
    if mig.index >= 0 and mig.gpu_uuid in indices:
        names.append(f"{indices[mig.gpu_uuid]}:{mig.index}")
    return names


def _without_kind(name: str) -> str:
    """Return a name without its CDI kind; one of another vendor or class refuses the container."""
    kind, equals, device = name.partition("=")
    if not equals:
        return name
    if kind.lower() not in CDI_KINDS:
        raise RequestError(f"unknown CDI device {one_line(name, 100)}", f"known kinds are {', '.join(CDI_KINDS)}")
    return device


def _normalise(name: str) -> str:
    """Return a name in the spelling of the table: lower case, PCI addresses as ``00000000:00:00.0``."""
    lowered = name.lower() if len(name) <= _MAX_NAME else ""
    parts = lowered.split(":")
    if "." not in parts[-1] or not 1 < len(parts) <= _PCI_PARTS:
        return lowered
    device, _, function = parts[-1].partition(".")
    domain = parts[0] if len(parts) == _PCI_PARTS else ""
    return f"{_pad(domain, 8)}:{_pad(parts[-2], 2)}:{_pad(device, 2)}.{function}"


def _pad(digits: str, width: int) -> str:
    return digits.lstrip("0").zfill(width)


def _hint_for(inventory: Inventory) -> str:
    names = [gpu.uuid for gpu in inventory.gpus] + [name_of_mig(mig) for mig in inventory.mig]
    return f"this node has {', '.join(names[:32]) or 'no GPU'}"
