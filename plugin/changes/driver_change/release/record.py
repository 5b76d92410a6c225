"""What is remembered of a node that was released: values, and the text of the file. Pure.

Not here: the file itself (`store`), and what the daemon does about it.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from plugin.base.documents import list_of, member, optional, read_versioned, text, truth, whole
from plugin.devices.inventory import Device, Inventory
from plugin.driver.gpu_state import parse_states, state_to_json
from plugin.driver.snapshot import GpuFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugin.devices.inventory import NodeTree
    from plugin.driver.gpu_state import GpuState

SCHEMA = "grapnel.dev/released/v1alpha1"
MAX_BYTES = 1024 * 1024
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class RememberedGpu:
    """A GPU as it was when the node was released. `unhealthy` is the reason, empty for a healthy one."""

    index: int
    uuid: str
    minor: int
    pci_address: str
    model: str = "unknown"
    unhealthy: str = ""


@dataclass(frozen=True)
class Release:
    """What is remembered. `since` is UTC (ISO 8601), `problem` says why the rest is unknown.

    `states` (by UUID) and whether there was a `libcuda` are for `verify`; a file of an older release has neither.
    """

    since: str
    boot_id: str = ""
    driver_version: str = ""
    gpus: tuple[RememberedGpu, ...] = ()
    problem: str = ""
    states: Mapping[str, GpuState] = field(default_factory=lambda: _NOTHING)
    libcuda: bool | None = None

    def describe(self) -> str:
        """Return it for a person."""
        return f"released, as {self.problem}" if self.problem else f"released since {self.since}"


def remember_gpus(inventory: Inventory, waiting_for: str = "") -> tuple[RememberedGpu, ...]:
    """Return what is worth remembering of an inventory.

    A GPU that is only unhealthy because the whole driver is waited for counts as a healthy one.
    """
    return tuple(
        RememberedGpu(
            index=device.gpu.index,
            uuid=device.gpu.uuid,
            minor=device.gpu.minor,
            pci_address=device.gpu.pci_address,
            model=device.gpu.model,
            unhealthy="" if device.unhealthy == waiting_for else device.unhealthy,
        )
        for device in inventory.devices
    )


def remembered_inventory(release: Release, tree: NodeTree) -> Inventory:
    """Return the GPUs of a release as an inventory in which none can be given away."""
    devices = tuple(
        Device(
            GpuFacts(gpu.index, gpu.uuid, gpu.minor, gpu.pci_address, memory_bytes=None, model=gpu.model),
            path=f"/dev/nvidia{gpu.minor}",
            numa_node=tree.numa_node(gpu.pci_address),
            unhealthy=release.describe(),
        )
        for gpu in release.gpus
    )
    return Inventory(release.driver_version, devices)


def utc(now_s: float) -> str:
    """Return a moment as it is written in the file."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_s))


def gpu_to_json(gpu: RememberedGpu) -> dict[str, object]:
    """Return a GPU in the form of the file."""
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "minor": gpu.minor,
        "pciAddress": gpu.pci_address,
        "model": gpu.model,
        "unhealthy": gpu.unhealthy,
    }


def parse_gpu(value: Any) -> RememberedGpu:
    """Return a GPU from the form of the file; raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError("a gpu must be an object")
    return RememberedGpu(
        index=member(value, "index", whole()),
        uuid=member(value, "uuid", text()),
        minor=member(value, "minor", whole()),
        pci_address=member(value, "pciAddress", text()),
        model=member(value, "model", text()),
        unhealthy=member(value, "unhealthy", text()),
    )


def render_release(release: Release) -> str:
    """Return the text of the file."""
    document = {
        "schema": SCHEMA,
        "since": release.since,
        "bootId": release.boot_id,
        "driverVersion": release.driver_version,
        "gpus": [gpu_to_json(gpu) for gpu in release.gpus],
        "states": {uuid: state_to_json(state) for uuid, state in release.states.items()},
        "libcuda": release.libcuda,
    }
    return json.dumps(document, indent=2) + "\n"


def parse_release(content: bytes) -> Release:
    """Return what a file says; raises ValueError for one that this version does not understand."""
    document = read_versioned(content, MAX_BYTES, SCHEMA)
    return Release(
        since=member(document, "since", text()),
        boot_id=member(document, "bootId", text()),
        driver_version=member(document, "driverVersion", text()),
        gpus=member(document, "gpus", list_of(parse_gpu)),
        states=member(document, "states", parse_states, {}),
        libcuda=member(document, "libcuda", optional(truth), None),
    )
