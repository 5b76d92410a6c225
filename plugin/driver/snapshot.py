"""What the driver said about the GPUs at one moment: plain values.

Not here: what is made of it. Health and device nodes are the inventory's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plugin.driver.reading import Reading, XidEvent

from plugin.driver.topology.facts import NO_LINKS, LinkFacts


@dataclass(frozen=True)
class MigSize:
    """What a MIG device has of its GPU (NVML's device attributes)."""

    memory_mib: int
    multiprocessors: int
    gpu_slices: int
    compute_slices: int
    copy_engines: int = 0
    decoders: int = 0
    encoders: int = 0
    jpeg_engines: int = 0
    ofa_engines: int = 0


@dataclass(frozen=True)
class MigFacts:
    """One MIG device, as NVML numbers it: its index counts from its GPU."""

    uuid: str
    index: int
    gpu_instance: int
    compute_instance: int
    profile: str = ""  # "1g.10gb+me"; "" and None where the driver does not say
    size: MigSize | None = None


@dataclass(frozen=True)
class GpuFacts:
    """One GPU that answered."""

    index: int
    uuid: str
    minor: int
    pci_address: str  # as in sysfs: 0000:10:00.0
    memory_bytes: int | None  # None where the driver does not say
    model: str
    brand: str = ""  # this and the next are "" where the driver does not say
    compute_capability: str = ""
    mig: tuple[MigFacts, ...] = ()
    is_cut: bool | None = None  # whether it is in MIG mode; None where it has no such mode
    has_ecc: bool | None = None  # whether ECC is on; None where it has no such mode, or the driver does not say


@dataclass(frozen=True)
class LostGpu:
    """A GPU the driver counts but which did not answer."""

    index: int
    uuid: str | None  # None when not even that could be read
    reason: str


@dataclass(frozen=True)
class Snapshot:
    """All GPUs of the node, in the driver's order."""

    driver_version: str
    gpus: tuple[GpuFacts, ...]
    lost: tuple[LostGpu, ...] = ()
    cuda_version: str = ""
    links: LinkFacts = NO_LINKS  # between the GPUs that answered


class GpuSource(Protocol):
    """Where snapshots come from. One thread uses it; every method may block for seconds."""

    def open(self) -> None:
        """Start a session; raises DriverNotReady."""

    def snapshot(self) -> Snapshot:
        """Ask for every GPU; raises DriverNotReady when the driver as a whole does not answer."""

    def read_health(self) -> Mapping[str, Reading]:
        """Ask every GPU for its condition, by UUID; one that does not answer is left out."""

    def watch_events(self, happened: Callable[[], None]) -> None:
        """Hear of XID errors from now on; `happened` is called in any thread after some did, and must not block."""

    def take_events(self) -> tuple[XidEvent, ...]:
        """Return the errors since the last time, also after the end of a session; never waits.

        Raises DriverNotReady when none are heard any more in this session, once those that were heard are taken.
        """

    def close(self) -> None:
        """End the session and let go of the library; does nothing without a session."""
