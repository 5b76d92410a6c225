"""Nodes, their cards, and pods that want memory units, as values. Pure.

A unit is a share of one card's memory, one device to the kubelet; how many bytes it has is the same for a whole node.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

RESOURCE = "aliyun.com/gpu-mem"
UNKNOWN_CARD = -1  # as `kubectl inspect gpushare` numbers it


class Card(NamedTuple):
    """A GPU that is offered in units. `number` is the driver's index, and what people and annotations call it."""

    uuid: str
    number: int
    units: int
    is_healthy: bool = True


class Holding(NamedTuple):
    """The units of one card that one container holds, as the kubelet lists it."""

    namespace: str
    pod: str
    container: str
    uuid: str
    units: int


class Report(NamedTuple):
    """What a node's daemon says. `at_ns`: when it asked the kubelet, by its own clock; 0: it has no answer yet."""

    resource: str
    unit_bytes: int
    cards: tuple[Card, ...]
    at_ns: int = 0
    holdings: tuple[Holding, ...] = ()

    @property
    def units(self) -> int:
        """The units that the kubelet can give."""
        return sum(card.units for card in self.cards if card.is_healthy)


class Demand(NamedTuple):
    """The units that a pod asks for. `containers`: those that run together, in order; `initial`: the largest before.

    What the kubelet gives to an init container it gives to the containers after it again.
    """

    containers: tuple[int, ...]
    initial: int = 0

    @property
    def running(self) -> int:
        """The units of all containers that run together."""
        return sum(self.containers)

    @property
    def units(self) -> int:
        """The units that the pod takes."""
        return max(self.initial, self.running)

    @property
    def steps(self) -> tuple[int, ...]:
        """The numbers of units that the kubelet gives at a time, each from one card."""
        if not self.initial:
            return tuple(units for units in self.containers if units)
        rest = self.running - self.initial
        return (self.initial, rest) if rest > 0 else (self.initial,)


class Pod(NamedTuple):
    """A pod that wants units and has not ended. `node` is empty while it is bound to none.

    `annotations` has ours alone; `names` are those of `demand.containers`.
    """

    namespace: str
    name: str
    uid: str
    demand: Demand
    names: tuple[str, ...] = ()
    node: str = ""
    created_ns: int = 0
    annotations: Mapping[str, str] = MappingProxyType({})

    @property
    def title(self) -> str:
        """What people call it."""
        return f"{self.namespace}/{self.name}"


class Node(NamedTuple):
    """A Node. `allocatable`: the units that its kubelet says it can give; `problem`: why its report cannot be used."""

    name: str
    address: str = ""
    allocatable: int = 0
    report: Report | None = None
    problem: str = ""
