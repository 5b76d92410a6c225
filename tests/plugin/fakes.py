"""A driver in a file and a small node tree: the daemon's seams, filled with real small classes."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from plugin.base.errors import DriverNotReady
from plugin.devices.allocation.table import EMPTY_TABLE, prepare_tables
from plugin.devices.naming import NamePattern
from plugin.devices.resources import OfferRules, plan_offers
from plugin.driver.reading import Reading, XidEvent
from plugin.driver.snapshot import GpuFacts, LostGpu, MigFacts, MigSize, Snapshot
from plugin.driver.telemetry import GpuProcess, GpuTelemetry
from plugin.driver.topology.facts import GpuLinks, LinkFacts, Nic, Place

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from plugin.devices.allocation.answer import AnswerForm
    from plugin.devices.allocation.table import AllocationTable
    from plugin.devices.inventory import Inventory

VERSION = "550.163.01"


def gpu(index: int, *, minor: int | None = None) -> GpuFacts:
    """Return a GPU whose uuid ends in its index."""
    return GpuFacts(
        index=index,
        uuid=f"GPU-00000000-0000-0000-0000-{index:012d}",
        minor=index if minor is None else minor,
        pci_address=f"0000:{0x10 + index:02x}:00.0",
        memory_bytes=80 * 2**30,
        model="NVIDIA A100-SXM4-80GB",
    )


def gpus(count: int) -> tuple[GpuFacts, ...]:
    return tuple(gpu(index) for index in range(count))


def whole_table(inventory: Inventory, form: AnswerForm | None = None) -> AllocationTable:
    """Return the table of a node whose GPUs are all offered whole, as one resource."""
    plan = plan_offers(inventory, OfferRules((NamePattern("*", "nvidia.com/gpu"),)))
    return prepare_tables(plan, inventory, form).get("nvidia.com/gpu", EMPTY_TABLE)


def write_driver(path: Path, snapshot: Snapshot | None) -> None:
    """Put the driver's state in its file at once; None takes the driver away."""
    if snapshot is None:
        path.unlink(missing_ok=True)
        return
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(asdict(snapshot)))
    beside.rename(path)


def _gpu_of(found: dict[str, Any]) -> GpuFacts:
    return GpuFacts(**{**found, "mig": tuple(map(_mig_of, found["mig"]))})


def _mig_of(found: dict[str, Any]) -> MigFacts:
    return MigFacts(**{**found, "size": found["size"] and MigSize(**found["size"])})


@dataclass
class FileSource:
    """A GpuSource that says what a file says; no file is no driver."""

    path: Path
    opened: int = 0
    is_open: bool = False

    def open(self) -> None:
        if not self.path.exists():
            raise DriverNotReady("nvml does not answer: driver not loaded", "load it")
        self.opened += 1
        self.is_open = True

    def snapshot(self) -> Snapshot:
        assert self.is_open, "snapshot without a session"
        try:
            state = json.loads(self.path.read_text())
        except FileNotFoundError as error:
            raise DriverNotReady("nvml does not answer: driver not loaded", "load it") from error
        return Snapshot(
            state["driver_version"],
            tuple(_gpu_of(found) for found in state["gpus"]),
            tuple(LostGpu(**found) for found in state["lost"]),
            state.get("cuda_version", ""),
            links=LinkFacts(
                tuple(
                    GpuLinks(each["uuid"], fabric=each["fabric"]) for each in state.get("links", {"gpus": ()})["gpus"]
                )
            ),
        )

    def read_health(self) -> dict[str, Reading]:
        return {found.uuid: Reading(processes=0) for found in self.snapshot().gpus}

    def watch_events(self, happened: Callable[[], None]) -> None:
        assert self.is_open, f"{happened} without a session"

    def take_events(self) -> tuple[XidEvent, ...]:
        return ()

    def close(self) -> None:
        assert self.is_open, "close without a session"
        self.is_open = False


def telemetry(index: int) -> GpuTelemetry:
    """Return measurements that tell one GPU from the next."""
    return GpuTelemetry(
        gpu(index).uuid,
        gpu_utilization_percent=10 + index,
        memory_total_bytes=80 * 2**30,
        memory_used_bytes=(index + 1) * 2**30,
        power_usage_mw=100_500 + index,
    )


def read_telemetry(path: Path) -> tuple[GpuTelemetry, ...] | None:
    """Measure every GPU of a driver in a file; None without it. `processes.json` beside it has those by GPU."""
    try:
        found = json.loads(path.read_text())["gpus"]
    except FileNotFoundError:
        return None
    return tuple(telemetry(each["index"])._replace(**_processes(path, each["index"])) for each in found)


def _processes(path: Path, index: int) -> dict[str, Any]:
    listing = path.with_name("processes.json")
    if not listing.exists():
        return {}
    asked_at_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    processes = tuple(GpuProcess(*each) for each in json.loads(listing.read_text())[index])
    return {"processes": processes, "asked_at_s": asked_at_s}


@dataclass
class DictTree:
    """A NodeTree with every device node but the missing ones."""

    missing: set[str] = field(default_factory=set)
    numa: dict[str, int] = field(default_factory=dict)
    minors: dict[str, int] = field(default_factory=dict)
    nodes: set[str] = field(default_factory=set)
    memory: int | None = None

    def memory_bytes(self) -> int | None:
        return self.memory

    def gpu_nodes(self) -> frozenset[str]:
        return frozenset(self.nodes)

    def device_path(self, name: str) -> str | None:
        return None if name in self.missing else f"/dev/{name}"

    def numa_node(self, pci_address: str) -> int | None:
        return self.numa.get(pci_address)

    def place(self, pci_address: str) -> Place:
        return Place(pci_address, self.numa_node(pci_address))

    def nics(self) -> tuple[Nic, ...]:
        return ()

    def mig_minors(self) -> dict[str, int]:
        return self.minors


def make_dev(folder: Path, count: int) -> None:
    """Make a folder of device nodes: links to /dev/null are character devices and need no root."""
    folder.mkdir(exist_ok=True)
    for name in (
        "nvidiactl",
        "nvidia-uvm",
        "nvidia-uvm-tools",
        *(f"nvidia{minor}" for minor in range(count)),
    ):
        (folder / name).symlink_to("/dev/null")
