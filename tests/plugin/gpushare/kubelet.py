"""A node that gives units away as a kubelet does: by id, one container at a time, each from one card."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plugin.gpushare.books.model import RESOURCE, Card, Report
from plugin.gpushare.books.report import holdings_of
from plugin.kubelet.pod_resources.attribution import DeviceAssignment, PodContainer
from tests.plugin.gpushare.documents import GIB

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from plugin.gpushare.books.model import Pod

    Choose: TypeAlias = Callable[[Sequence[tuple[int, Card]]], Card]


class NoRoom(Exception):
    """A container finds no card."""


def packed(fitting: Sequence[tuple[int, Card]]) -> Card:
    """Prefer the card with the least free, as the daemon does."""
    return min(fitting, key=lambda each: (each[0], each[1].number))[1]


def spread(fitting: Sequence[tuple[int, Card]]) -> Card:
    """Prefer the card with the most free: what the extender does not expect."""
    return max(fitting, key=lambda each: (each[0], each[1].number))[1]


@dataclass
class Kubelet:
    """One node. `given` has each id that is in use, and who has it: that an id is never there twice is checked."""

    cards: tuple[Card, ...]
    given: dict[str, tuple[str, str, str, str]] = field(default_factory=dict)  # id → uid, namespace, pod, container

    def free(self, card: Card) -> list[str]:
        return [unit for unit in (f"{card.uuid}/{j}" for j in range(card.units)) if unit not in self.given]

    def admit(self, pod: Pod, choose: Choose = packed) -> None:
        """Give each container its units; raises NoRoom, and then the pod has none."""
        try:
            for name, units in zip(pod.names, pod.demand.containers, strict=True):
                if units:
                    self._give(pod, name, units, choose)
        except NoRoom:
            self.end(pod.uid)
            raise

    def _give(self, pod: Pod, name: str, units: int, choose: Choose) -> None:
        fitting = [(len(self.free(card)), card) for card in self.cards if len(self.free(card)) >= units]
        if not fitting:
            raise NoRoom(pod.title)
        for unit in self.free(choose(fitting))[:units]:
            assert unit not in self.given, "a unit is given twice"
            self.given[unit] = (pod.uid, pod.namespace, pod.name, name)

    def end(self, uid: str) -> None:
        self.given = {unit: holder for unit, holder in self.given.items() if holder[0] != uid}

    def list(self) -> tuple[DeviceAssignment, ...]:
        """Answer as podresources does."""
        found: dict[PodContainer, list[str]] = {}
        for unit, (_, namespace, pod, container) in self.given.items():
            found.setdefault(PodContainer(namespace, pod, container), []).append(unit)
        return tuple(DeviceAssignment(holder, RESOURCE, tuple(units)) for holder, units in found.items())

    def report(self, at_ns: int) -> Report:
        return Report(RESOURCE, GIB, self.cards, at_ns, holdings_of(self.list(), RESOURCE))
