"""Where a pod fits: gpushare's rule, and that nothing on its way to the kubelet can be left without a card."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugin.gpushare.books.model import Card, Demand
from plugin.gpushare.books.placement import CardUse, NodeUse, Refusal, is_certain, place


def use(*cards: tuple[int, int], assumed: tuple[int, ...] = (), on_the_way: tuple[int, ...] = ()) -> NodeUse:
    """Return a node with cards of (units, held)."""
    planned = [*assumed, *([0] * len(cards))]
    return NodeUse(
        tuple(CardUse(Card(f"GPU-{n}", n, units), held, planned[n]) for n, (units, held) in enumerate(cards)),
        on_the_way,
    )


@pytest.mark.parametrize(
    ("node", "demand", "expected"),
    [
        pytest.param(use((10, 0), (10, 4), (10, 7)), Demand((5,)), 1, id="the least free that fits"),
        pytest.param(use((10, 3), (10, 3)), Demand((2,)), 0, id="of equal ones the first"),
        pytest.param(use((8, 0), (80, 0)), Demand((9,)), 1, id="cards of unequal memory"),
        pytest.param(use((10, 0), (10, 0), assumed=(0, 5), on_the_way=(5,)), Demand((2,)), 1, id="a promise counts"),
        pytest.param(use((10, 5), (10, 9)), Demand((2, 3)), 0, id="several containers, one card"),
    ],
)
def test_the_card(node: NodeUse, demand: Demand, expected: int) -> None:
    found = place(node, demand)
    assert isinstance(found, Card)
    assert found.number == expected


@pytest.mark.parametrize(
    ("node", "demand", "words", "is_lasting"),
    [
        pytest.param(use((10, 6), (10, 7)), Demand((5,)), "the one with most has 4", False, id="no card has room"),
        pytest.param(use((10, 6), (10, 6)), Demand((3, 3)), "no card has 6 free units", False, id="only two together"),
        pytest.param(use((10, 0)), Demand((11,)), "the largest one has 10", True, id="it would never fit"),
        pytest.param(NodeUse(problem="no cards"), Demand((1,)), "no cards", True, id="no node of this kind"),
        pytest.param(
            use((10, 0), (10, 0), assumed=(10, 4), on_the_way=(6, 4, 4)),
            Demand((6,)),
            "wait until",
            False,
            id="uncertain",
        ),
    ],
)
def test_refusals(node: NodeUse, demand: Demand, words: str, *, is_lasting: bool) -> None:
    found = place(node, demand)
    assert isinstance(found, Refusal)
    assert words in found.reason
    assert found.is_lasting == is_lasting


def test_units_that_the_kubelet_does_not_have_may_be_of_any_card() -> None:
    assert is_certain([10, 10], [10], withheld=1)
    assert not is_certain([10, 10], [10], withheld=2)  # one of each card


def test_pods_of_one_kind_fill_all_cards_at_once() -> None:
    assert is_certain([80] * 8, [10] * 64)
    assert not is_certain([80] * 8, [10] * 65)


def test_what_would_take_too_long_to_find_out_is_not_certain() -> None:
    assert not is_certain([80] * 8, [*range(1, 36)])


def test_an_unhealthy_card_has_no_room() -> None:
    ill = NodeUse((CardUse(Card("GPU-0", 0, 10, is_healthy=False)), CardUse(Card("GPU-1", 1, 10), 8)))
    assert isinstance(place(ill, Demand((3,))), Refusal)


def can_fail(rooms: tuple[int, ...], left: tuple[int, ...]) -> bool:
    """Whether some order and some choice of cards leaves one without a card: all of them are tried."""
    for at, units in enumerate(left):
        fitting = [card for card, room in enumerate(rooms) if room >= units]
        if not fitting:
            return True
        rest = left[:at] + left[at + 1 :]
        for card in fitting:
            after = (*rooms[:card], rooms[card] - units, *rooms[card + 1 :])
            if can_fail(after, rest):
                return True
    return False


@settings(max_examples=300)
@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=3).map(tuple),
    st.lists(st.integers(1, 5), max_size=4).map(tuple),
)
def test_what_is_certain_cannot_fail(rooms: tuple[int, ...], on_the_way: tuple[int, ...]) -> None:
    if is_certain(rooms, on_the_way):
        assert not can_fail(rooms, on_the_way)
    else:
        assert can_fail(rooms, on_the_way), "small cases are all looked at"


@given(st.integers(0, 20), st.lists(st.integers(1, 9), max_size=5))
def test_on_a_single_card_it_is_certain_exactly_where_all_fit(room: int, on_the_way: list[int]) -> None:
    assert is_certain([room], on_the_way) == (sum(on_the_way) <= room or not on_the_way)
