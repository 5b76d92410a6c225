"""What the daemon says on its Node, and how often."""

from __future__ import annotations

from plugin.gpushare.books.model import RESOURCE, Holding
from plugin.gpushare.books.report import ANNOTATION, MAX_BYTES, parse_report
from plugin.gpushare.keeper import UnitKeeper
from plugin.kubelet.pod_resources.attribution import DeviceAssignment, PodContainer
from tests.plugin.gpushare.documents import GIB, cards

LISTED = (DeviceAssignment(PodContainer("jobs", "p", "c"), RESOURCE, ("GPU-0/0", "GPU-0/1")),)
HELD = (Holding("jobs", "p", "c", "GPU-0", 2),)


class Said(list[str | None]):
    """Everything that was put on the Node."""

    def __call__(self, annotations: object) -> None:
        assert isinstance(annotations, dict)
        self.append(annotations[ANNOTATION])


def keeper() -> tuple[UnitKeeper, Said]:
    said = Said()
    return UnitKeeper(said), said


def offering() -> tuple[UnitKeeper, Said]:
    made, said = keeper()
    made.offered(RESOURCE, GIB, cards(10))
    said.clear()
    return made, said


def test_nothing_is_said_where_nothing_is_offered_in_units() -> None:
    made, said = keeper()
    made.offered(RESOURCE, GIB, ())
    made.allocated(RESOURCE, 1.0)
    made.listed(LISTED, 2.0)
    assert said == []


def test_cards_are_said_before_the_kubelet_was_asked_and_pods_afterwards() -> None:
    made, said = keeper()
    made.offered(RESOURCE, GIB, cards(10))
    made.listed(LISTED, 2.0)
    first, second = (parse_report(text or "") for text in said)
    assert (first.cards, first.at_ns, first.holdings) == (cards(10), 0, ())
    assert (second.at_ns, second.holdings) == (2_000_000_000, HELD)


def test_what_the_kubelet_said_before_is_said_with_the_first_cards() -> None:
    made, said = keeper()
    made.listed(LISTED, 2.0)
    made.offered(RESOURCE, GIB, cards(10))
    assert [parse_report(text or "").holdings for text in said] == [HELD]


def test_the_same_is_not_said_again() -> None:
    made, said = offering()
    for at in (2.0, 3.0, 4.0):
        made.listed(LISTED, at)
        made.offered(RESOURCE, GIB, cards(10))
    assert len(said) == 1


def test_after_an_allocation_the_same_is_said_again_for_the_pod_may_be_another_one_of_its_name() -> None:
    made, said = offering()
    made.listed(LISTED, 2.0)
    made.allocated(RESOURCE, 3.0)
    made.listed(LISTED, 2.9)  # asked before
    assert len(said) == 1
    made.listed(LISTED, 4.0)
    made.listed(LISTED, 5.0)
    assert [parse_report(text or "").at_ns for text in said] == [2_000_000_000, 4_000_000_000]


def test_allocations_of_other_resources_do_not_matter() -> None:
    made, said = offering()
    made.listed(LISTED, 2.0)
    made.allocated("nvidia.com/gpu", 3.0)
    made.listed(LISTED, 4.0)
    assert len(said) == 1


def test_cards_that_change_are_said_at_once() -> None:
    made, said = offering()
    made.listed(LISTED, 2.0)
    made.offered(RESOURCE, GIB, tuple(card._replace(is_healthy=False) for card in cards(10)))
    assert [parse_report(text or "").cards[0].is_healthy for text in said] == [True, False]
    assert parse_report(said[-1] or "").holdings == HELD


def test_the_annotation_goes_with_the_last_card_and_is_not_removed_where_it_never_was() -> None:
    made, said = offering()
    made.offered(RESOURCE, GIB, ())
    made.offered(RESOURCE, GIB, ())
    made.listed(LISTED, 2.0)
    assert said == [None]


def test_more_pods_than_an_annotation_can_hold_are_left_off_and_the_cards_stay() -> None:
    made, said = offering()
    many = tuple(
        DeviceAssignment(PodContainer("n" * 200, f"{number}-{'p' * 200}", "c"), RESOURCE, (f"GPU-0/{number}",))
        for number in range(1000)
    )
    made.listed(many, 2.0)
    [text] = said
    assert text is not None
    assert len(text) < MAX_BYTES
    assert parse_report(text).at_ns == 0
