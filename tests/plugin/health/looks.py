"""Short words for looks at a node of two GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.devices.health.judgement import next_health, why_unhealthy
from plugin.devices.health.model import (
    GpuHealth,
    GpuInput,
    HealthInput,
    Moment,
    NodeHealth,
    Policy,
    Transition,
    Verdict,
)
from plugin.driver.reading import Counters, Reading, XidEvent

if TYPE_CHECKING:
    from collections.abc import Mapping

A = "GPU-00000000-0000-0000-0000-00000000000a"
B = "GPU-00000000-0000-0000-0000-00000000000b"
MIG = "MIG-00000000-0000-0000-0000-0000000000a1"
POLICY = Policy(quiet_s=300)
FIRST_BOOT = Moment("boot 1", "load 1", 1000.0, "2026-09-01T10:00:00Z", 0.0)
IDLE = Reading(Counters(energy_mj=10**9, volatile_corrected=0, volatile_uncorrected=0), processes=0, rows_pending=False)
BUSY = IDLE._replace(processes=1)
GONE = None


class Node:
    """A node that is looked at again and again. Both GPUs answer and are idle, unless a look says otherwise."""

    def __init__(self, policy: Policy = POLICY) -> None:
        self.state = NodeHealth()
        self.policy = policy
        self.moment = FIRST_BOOT
        self.verdicts: dict[str, Verdict] = {}
        self.told: list[Transition] = []
        self.look()

    def look(
        self, *xids: int, a: Reading | None = IDLE, b: Reading | None = IDLE, of: str = A, after_s: float = 5
    ) -> tuple[Transition, ...]:
        """Look once, some time after the last one; XID errors are those of `of`."""
        self.moment = self.moment._replace(uptime_s=self.moment.uptime_s + after_s)
        gpus = tuple(GpuInput(uuid, reading, "" if reading else "gpu is lost") for uuid, reading in ((A, a), (B, b)))
        events = tuple(XidEvent(of, xid) for xid in xids)
        look = HealthInput(self.moment, gpus, events, self.verdicts, parents={MIG: A})
        self.state, changes = next_health(self.state, look, self.policy)
        self.told += changes
        return changes

    def boot(self) -> None:
        number = int(self.moment.boot_id.split()[1]) + 1
        self.moment = self.moment._replace(boot_id=f"boot {number}", uptime_s=20.0, watched_since_s=20.0)

    def reload(self) -> None:
        number = int(self.moment.module_id.split()[1]) + 1
        self.moment = self.moment._replace(module_id=f"load {number}")

    def restart_daemon(self) -> None:
        now = self.moment.uptime_s + 1
        self.moment = self.moment._replace(uptime_s=now, watched_since_s=now)

    def why(self, uuid: str = A) -> str:
        return why_unhealthy(self.state.gpus.get(uuid, GpuHealth()))

    @property
    def gpus(self) -> Mapping[str, GpuHealth]:
        return self.state.gpus


def was_reset(reading: Reading = IDLE) -> Reading:
    """Return the reading of a GPU whose counters were reset."""
    return reading._replace(counters=reading.counters._replace(energy_mj=5))
