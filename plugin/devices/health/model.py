"""The values of health: what was seen, what is open against a GPU, what a person decided.

Times are seconds of CLOCK_BOOTTIME, which no one sets and which goes on while a machine sleeps; they are only
compared within one boot. Texts for people are UTC (ISO 8601). The values are named tuples: frozen like dataclasses, and
made in a seventh of the time, which is 8 ms of the daemon's start.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from plugin.driver.reading import Counters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugin.driver.reading import Reading, XidEvent

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Class(IntEnum):
    """What a cause asks for, weakest first; the same steps measure evidence. From PASSING on a GPU is condemned."""

    NOTED = 0
    APPLICATION = 1
    PASSING = 2
    RESET = 3
    RELOAD = 4
    REBOOT = 5
    REPLACE = 6

    @property
    def condemns(self) -> bool:
        """Whether a GPU with such a finding is given to no pod."""
        return self >= Class.PASSING

    @property
    def word(self) -> str:
        """The class in the state file and in JSON."""
        return self.name.lower()


NEEDS = {
    Class.NOTED: "nothing",
    Class.APPLICATION: "nothing: the application's own error",
    Class.PASSING: "a quiet time, and nobody using it",
    Class.RESET: "a reset of the GPU",
    Class.RELOAD: "a reload of the driver",
    Class.REBOOT: "a reboot of the node",
    Class.REPLACE: "an exchange of the hardware, and a verdict by hand",
}


class GpuInput(NamedTuple):
    """One known GPU. `absent` says why it does not answer; `reading` None: it was not asked for one."""

    uuid: str
    reading: Reading | None = None
    absent: str = ""


class SliceInput(NamedTuple):
    """One MIG device of a GPU, with the numbers by which the driver blames it."""

    uuid: str
    gpu: str
    gpu_instance: int
    compute_instance: int


class Moment(NamedTuple):
    """When a look happened: of which boot and driver load, and since when events are watched without a gap."""

    boot_id: str
    module_id: str  # of one load of the kernel module; "" where it cannot be told
    uptime_s: float
    utc: str
    watched_since_s: float


class Verdict(NamedTuple):
    """What a person decided of a GPU; it stands above everything that is found, until it is cleared."""

    is_healthy: bool
    reason: str
    since: str


class HealthInput(NamedTuple):
    """Everything that one observation of the GPUs brought. `parents` maps MIG devices to their GPUs."""

    moment: Moment
    gpus: tuple[GpuInput, ...]
    events: tuple[XidEvent, ...] = ()
    verdicts: Mapping[str, Verdict] = _NOTHING
    parents: Mapping[str, str] = _NOTHING
    slices: tuple[SliceInput, ...] = ()


class Policy(NamedTuple):
    """How causes are judged. XID lists as in NVIDIA's plugin: `enforced` stands above `skipped` and `skips_all`.

    `skips_conditions`: what readings show (memory, links) condemns nobody either. A GPU that does not answer is lost
    whatever is skipped.
    """

    quiet_s: float = 300.0
    skipped_xids: frozenset[int] = frozenset()
    enforced_xids: frozenset[int] = frozenset()
    skips_all_xids: bool = False
    enforces_all_xids: bool = False
    skips_conditions: bool = False
    returns: int = 3  # so often within `returns_s` quiet brings a GPU back; after that it takes a reset
    returns_s: float = 86400.0


class Sighting(NamedTuple):
    """A cause as it shows in one observation."""

    cause: str  # "xid 79", "rows failed": one finding each
    kind: Class
    detail: str


class Finding(NamedTuple):
    """A cause that is open against a GPU, and where it was seen last: what evidence is measured against."""

    cause: str
    kind: Class
    detail: str
    since: str
    boot_id: str
    module_id: str
    seen_s: float
    resets: int = 0  # of the GPU, counted until then


class GpuHealth(NamedTuple):
    """What is known of one GPU. `links_best` is how many links were up at once, since it was last set up.

    `counters` were read at `read_s`; `resets` counts how often they were found set back.
    """

    findings: tuple[Finding, ...] = ()
    verdict: Verdict | None = None
    resets: int = 0
    counters: Counters = Counters()
    read_s: float = 0.0
    boot_id: str = ""
    module_id: str = ""
    links_best: int | None = None
    returns: tuple[float, ...] = ()  # when quiet alone brought it back, of this load of the driver


class NodeHealth(NamedTuple):
    """All GPUs that were ever something to remember, and the MIG devices that something is open against, by UUID."""

    gpus: Mapping[str, GpuHealth] = _NOTHING


class FindingChange(Enum):
    """What happens to a finding or a verdict."""

    OPENED = "opened"
    CLOSED = "closed"
    VERDICT = "verdict"
    STRAY = "stray"  # an event of a device that is not known


class Transition(NamedTuple):
    """One change, told once: for the journal, and for events, conditions and metrics. `uuid` is "" for a stray."""

    uuid: str
    change: FindingChange
    cause: str
    kind: Class
    reason: str
    utc: str

    @property
    def new_xid(self) -> int | None:
        """The number of an XID error that a GPU has now and had not before; None for anything else."""
        is_new = self.change is FindingChange.OPENED and self.cause.startswith("xid ")
        return int(self.cause[len("xid ") :]) if is_new else None
