"""Whether a pod fits on a node, and on which of its cards. Pure.

Among the cards that fit, the one with the least free (gpushare's rule). The kubelet places what was bound before in an
order that is not known, and on cards that it chooses with the daemon's preference. So a pod is only let in where that
cannot go wrong: whatever order and cards are chosen, each container on its way finds a card with room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugin.gpushare.books.model import Card, Demand


_MAX_CASES = 100


class CardUse(NamedTuple):
    """What is known of a card. `held`: units that the kubelet has given; `assumed`: of pods on their way to it."""

    card: Card
    held: int = 0
    assumed: int = 0

    @property
    def room(self) -> int:
        """The units that the kubelet can still give."""
        units = self.card.units
        return units - self.held if self.card.is_healthy and units > self.held else 0

    @property
    def free(self) -> int:
        """The units that no pod has, as far as it is planned."""
        room = self.room
        return room - self.assumed if room > self.assumed else 0


class NodeUse(NamedTuple):
    """What is known of a node's cards. `on_the_way`: numbers of units that its kubelet has still to give at a time.

    `withheld`: units that the kubelet does not have, of whichever card; `problem`: why no pod can be placed.
    """

    cards: tuple[CardUse, ...] = ()
    on_the_way: tuple[int, ...] = ()
    withheld: int = 0
    problem: str = ""


class Refusal(NamedTuple):
    """Why a pod is not placed. `is_lasting`: it would not fit if the node were empty."""

    reason: str
    is_lasting: bool = False


def place(use: NodeUse, demand: Demand) -> Card | Refusal:
    """Return the card that is to be kept for a pod, or why there is none."""
    if use.problem:
        return Refusal(use.problem, is_lasting=True)
    largest = max((each.card.units for each in use.cards), default=0)
    if largest < demand.units:
        return Refusal(f"no card has {demand.units} units: the largest one has {largest}", is_lasting=True)
    fitting = best_card(use.cards, demand.units)
    if fitting is None:
        freest = max((each.free for each in use.cards), default=0)
        return Refusal(f"no card has {demand.units} free units: the one with most has {freest}")
    if not is_certain([each.room for each in use.cards], [*use.on_the_way, *demand.steps], use.withheld):
        return Refusal(
            f"containers that the kubelet has still to place could take the {demand.units} units: wait until it has"
        )
    return fitting.card


def best_card(cards: Sequence[CardUse], units: int) -> CardUse | None:
    """Return the card with the least free of those that fit, of equal ones the first; None where none does."""
    fitting = [(free, each.card.number, each) for each in cards if (free := each.free) >= units]
    return min(fitting)[2] if fitting else None


def is_certain(rooms: Sequence[int], on_the_way: Sequence[int], withheld: int = 0) -> bool:
    """Whether each number of units finds a card, in any order and on whichever cards that fit the others are placed.

    It stays certain with each one that is placed. Where so many cases would have to be looked at that a scheduler would
    wait, it is not.
    """
    if has_room_in_any_case(rooms, on_the_way, withheld):
        return True
    return not withheld and _cannot_fail(tuple(sorted(rooms)), tuple(sorted(on_the_way)), set())


def has_room_in_any_case(rooms: Sequence[int], on_the_way: Sequence[int], withheld: int = 0) -> bool:
    """Whether the others are too few to be in the way, even if they were spread over several cards.

    To keep `units` off a card with `room`, others have to take `room - units + 1` of it; off all cards, the sum.
    """
    total = sum(on_the_way) + withheld
    return all(total - units < sum(room - units + 1 for room in rooms if room >= units) for units in set(on_the_way))


def _cannot_fail(rooms: tuple[int, ...], left: tuple[int, ...], good: set[tuple[tuple[int, ...], ...]]) -> bool:
    """Look at all orders and choices; `good` are the cases that were looked at."""
    sizes = set(left)
    if len(sizes) == 1:  # pods of one kind: each takes one place, whichever it is
        return sum(room // left[0] for room in rooms) >= len(left)
    if has_room_in_any_case(rooms, left) or (rooms, left) in good:
        return True
    good.add((rooms, left))
    if len(good) > _MAX_CASES or max(sizes) > rooms[-1]:
        return False
    return all(
        _cannot_fail(_without(rooms, room, units), _without(left, units), good)
        for units in sizes
        for room in set(rooms)
        if room >= units
    )


def _without(numbers: tuple[int, ...], number: int, taken: int | None = None) -> tuple[int, ...]:
    """Return sorted numbers less one of them, or with `taken` less of it."""
    rest = list(numbers)
    rest.remove(number)
    return tuple(sorted([*rest, number - taken] if taken is not None else rest))
