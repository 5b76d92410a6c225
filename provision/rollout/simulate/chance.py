"""Draws how each step goes: one seed, node, phase and attempt give one answer, in whatever order they come."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from provision.rollout.model import Phase
from provision.rollout.simulate.scenario import DAY_S, USUAL, USUAL_IN_PLACE, Spread
from provision.rollout.simulate.world import PlannedStep

if TYPE_CHECKING:
    from provision.rollout.simulate.scenario import Scenario

_BROKEN = {
    Phase.SWAP: "the driver could not be exchanged",
    Phase.VERIFY: "the driver is not as expected: a GPU hangs",
}


_NO_TIME = Spread()


class Chance:
    """The fortune of one simulated roll-out."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        usual = USUAL if scenario.interface is None else USUAL_IN_PLACE
        self._durations, self._faults, self.seed = {**usual, **scenario.durations}, scenario.faults, seed

    def of(self, *what: object) -> Random:
        """Return numbers that belong to one thing alone."""
        return Random("/".join(map(str, (self.seed, *what))))

    def step(self, node: str, phase: Phase, attempt: int, *, is_back: bool) -> PlannedStep:
        """Return how a step goes. A fault is the node's with the new driver, and not of one attempt."""
        duration_s = self._durations[phase].draw(self.of(node, phase, attempt)) if phase in self._durations else 0.0
        share = {Phase.SWAP: self._faults.swap, Phase.VERIFY: self._faults.verify}.get(phase, 0.0)
        is_broken = bool(share) and not is_back and self.of("fails", node, phase).random() < share
        return PlannedStep(duration_s, _BROKEN[phase] if is_broken else "")

    def is_lost(self, node: str) -> bool:
        """Whether the node goes down in its swap."""
        return bool(self._faults.lost) and self.of("lost", node).random() < self._faults.lost

    def is_stuck(self, pod: str) -> bool:
        """Whether a pod never ends."""
        return bool(self._faults.pods) and self.of("stuck", pod).random() < self._faults.pods

    def grace_s(self, pod: str) -> float:
        """Return how long a pod takes to end."""
        return self._durations.get(Phase.DRAIN, _NO_TIME).draw(self.of("grace", pod))

    def ill_after_s(self, node: str) -> float | None:
        """Return when hardware of a node fails, None where it does not."""
        per_day = self._faults.ill_per_day
        return self.of("ill", node).expovariate(per_day / DAY_S) if per_day else None
