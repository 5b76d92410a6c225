"""The small fleet with up to two processes that are at it, and how it has to end once all faults are over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from provision.declaration.spec.model import Rollout
from tests.provision.rollout.model.invariants import History, hold
from tests.provision.rollout.model.outside import Outside
from tests.provision.rollout.model.policies import Declared
from tests.provision.rollout.model.process import KilledError, Process, begin

if TYPE_CHECKING:
    from collections.abc import Callable

HOLDERS = ("ada", "bob")
APPLIES = 2
TURNS = 400  # in which a rollout of so few nodes must have come to an end


@dataclass
class Fleet(Outside):
    """What happens to a fleet, and who rolls out on it."""

    processes: dict[str, Process] = field(default_factory=dict)
    history: History = field(default_factory=History)

    def apply(self, holder: str) -> None:
        """Begin an apply on somebody's machine, unless one runs there."""
        self._begin(holder, undoes=False)

    def rollback(self, holder: str) -> None:
        """Begin to take the whole fleet back, unless something runs on that machine."""
        self._begin(holder, undoes=True)

    def _begin(self, holder: str, *, undoes: bool) -> None:
        if holder in self.processes:
            return
        process = begin(self, holder, undoes=undoes)
        if process is not None:
            self.processes[holder] = process

    def turns(self, holder: str, number: int) -> None:
        """Let a process go on."""
        for _ in range(number):
            process = self.processes.get(holder)
            if process is None:
                return
            try:
                if process.turn():
                    del self.processes[holder]
            except KilledError:
                self.kill(holder)

    def go_on(self, holder: str, number: int) -> None:
        """Apply, or let what runs on that machine go on."""
        self.apply(holder)
        self.turns(holder, number)

    def kill(self, holder: str) -> None:
        """Kill a process between two turns."""
        process = self.processes.pop(holder, None)
        if process is not None:
            process.leave()

    def kill_at(self, holder: str, effect: int) -> None:
        """Kill a process just before one of its next effects."""

        def die() -> None:
            raise KilledError

        self._disturb_at(holder, effect, die)

    def disturb_at(self, holder: str, effect: int, what: str, name: str) -> None:
        """Have something happen to a node just before an effect of a process: after it has observed."""
        self._disturb_at(holder, effect, lambda: getattr(self, what)(name))

    def _disturb_at(self, holder: str, effect: int, disturb: Callable[[], None]) -> None:
        process = self.processes.get(holder)
        if process is not None:
            process.countdown, process.at_zero = effect, disturb
            self.turns(holder, 12)

    def freeze(self, seconds: float) -> None:
        """Let time pass in which no process does anything: they are frozen, or there is none."""
        end_s = self.world.time.now_s + seconds
        while self.world.time.step(end_s):
            pass

    # The end

    def finish(self) -> None:
        """Hold that a healthy fleet is brought to an end on which everybody agrees."""
        for holder in HOLDERS:
            self.kill(holder)
        self.end_faults()
        for name in self.names:
            self.end_jobs(name)
        self.freeze(600.0)
        everywhere = Rollout(max_parallel=len(self.names), max_unavailable=len(self.names))
        self.declared = Declared(self.declared.target, everywhere)
        stop = "".join(self.finish_once() for _ in range(APPLIES))  # what returned or failed is tried by the next one
        hold(not self.finish_once(), f"it stops although nothing is wrong: {stop}")
        self.hold_ended()

    def finish_once(self) -> str:
        """Apply once more; return why it stopped."""
        self.apply("ada")
        hold("ada" in self.processes, "nobody is at work, and the lease is not to be had")
        process = self.processes["ada"]
        self.turns("ada", TURNS)
        hold("ada" not in self.processes, "it does not end")
        return process.engine._stop or process.engine._decision.stop or ""

    def hold_ended(self) -> None:
        """Hold that every node has what is declared, and that no cordon of a rollout is left."""
        for machine in self.world.machines.values():
            record = machine.record
            hold(machine.driver == self.declared.target, f"{machine.name} has driver {machine.driver}")
            hold(record is None or record.phase.is_in_service, f"{machine.name} is not back in service")
            hold(machine.is_cordoned == bool(machine.cordoned_by), f"{machine.name} is cordoned: {machine.is_cordoned}")
