"""What NVML knows of the connections between GPUs: NVLinks, NVLink fabrics, and how near they are by PCIe.

Some hundred calls for eight GPUs, so it is asked once for the same GPUs of one session. A question that fails costs its
own answer and nothing else.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import pynvml

from plugin.driver.gpu_state import COMPLETED
from plugin.driver.nvml.loading.trust import FAULTS
from plugin.driver.nvml.state import read_fabric
from plugin.driver.topology.facts import GpuLinks, LinkFacts, NvLink, Remote

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from plugin.driver.snapshot import GpuFacts

_REMOTES = {
    pynvml.NVML_NVLINK_DEVICE_TYPE_GPU: Remote.GPU,
    pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH: Remote.SWITCH,
    pynvml.NVML_NVLINK_DEVICE_TYPE_IBMNPU: Remote.OTHER,
}


NVLINK_XIDS = frozenset((74, *range(144, 151), 155))  # after which links may be down
_LOOKS_BETWEEN = 12  # a minute at the usual pace


class LinkReader:
    """Reads them once for each set of GPUs. For one session: another one begins with a new reader.

    Facts in which something is missing, or a fabric that is not ready yet, are read again from time to time.
    """

    def __init__(self) -> None:
        self._gpus: tuple[tuple[int, str], ...] | None = None
        self._facts = LinkFacts()
        self._looks = 0

    def read(self, gpus: Sequence[GpuFacts]) -> LinkFacts:
        """Return the connections of these GPUs."""
        key = tuple((gpu.index, gpu.uuid) for gpu in gpus)
        self._looks += 1
        is_due = self._looks > _LOOKS_BETWEEN and not _is_complete(self._facts)
        if key != self._gpus or is_due:
            self._facts = read_links(gpus)
            self._gpus = key
            self._looks = 0
        return self._facts


def _is_complete(facts: LinkFacts) -> bool:
    """Whether there is nothing that a later look could add."""
    count = len(facts.gpus)
    is_told = all(gpu.nvlinks is not None and gpu.fabric != "" for gpu in facts.gpus)
    return is_told and len(facts.levels) == count * (count - 1) // 2


def read_links(gpus: Sequence[GpuFacts]) -> LinkFacts:
    """Ask for every GPU and every pair; of a single GPU only its fabric is worth a call."""
    handles = [(gpu, handle) for gpu in gpus if (handle := _handle(gpu)) is not None]
    if len(gpus) == 1:
        return LinkFacts(tuple(GpuLinks(gpu.uuid, fabric=_fabric(handle)) for gpu, handle in handles))
    addresses = {gpu.pci_address for gpu in gpus}
    return LinkFacts(
        gpus=tuple(GpuLinks(gpu.uuid, _nvlinks(handle, addresses), _fabric(handle)) for gpu, handle in handles),
        levels=tuple(_levels(handles)),
    )


def _handle(gpu: GpuFacts) -> Any:
    try:
        return pynvml.nvmlDeviceGetHandleByIndex(gpu.index)
    except FAULTS:
        return None


def _levels(handles: Sequence[tuple[GpuFacts, Any]]) -> Iterable[tuple[str, str, int]]:
    for (one, handle), (other, other_handle) in combinations(handles, 2):
        try:
            yield one.uuid, other.uuid, int(pynvml.nvmlDeviceGetTopologyCommonAncestor(handle, other_handle))
        except FAULTS:
            continue


def _nvlinks(handle: Any, gpus: set[str]) -> tuple[NvLink, ...] | None:
    """Return the active links that can be read; None where none can, though the GPU seems to have some."""
    found: list[NvLink] = []
    is_silent, has_failed = True, False
    for number in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            is_active = bool(pynvml.nvmlDeviceGetNvLinkState(handle, number))
        except pynvml.NVMLError_InvalidArgument:
            break  # the GPU has no link of this number
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
            continue
        except FAULTS:
            has_failed = True
            continue
        is_silent = False
        if is_active:
            found.append(_nvlink(handle, number, gpus))
    return None if has_failed and is_silent else tuple(found)


def _nvlink(handle: Any, number: int, gpus: set[str]) -> NvLink:
    """Return what is at the other end; a driver that does not say what it is may still say where it is."""
    try:
        address = sysfs_address(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, number).busId)
    except FAULTS:
        address = ""
    try:
        kind = _REMOTES.get(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, number), Remote.OTHER)
    except FAULTS:
        kind = Remote.GPU if address in gpus else Remote.OTHER
    return NvLink(kind, address)


def _fabric(handle: Any) -> str | None:
    """Return cluster and clique as NVIDIA's `gpu.clique` label does, "" while the fabric is not ready."""
    found = read_fabric(handle)
    if found is None:
        return None
    return str(found) if found.state == COMPLETED else ""


def sysfs_address(bus_id: str) -> str:
    """Return a PCI address as sysfs writes it; NVML writes eight digits of domain and capitals."""
    domain, _, rest = bus_id.partition(":")
    return f"{int(domain, 16):04x}:{rest.lower()}"
