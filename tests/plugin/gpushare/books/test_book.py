"""The books of a node: promises, what the kubelet says, and when units are free again."""

from __future__ import annotations

import pytest

from plugin.gpushare.books import pod_annotations
from plugin.gpushare.books.book import PROMISE_S, Books, Promise
from plugin.gpushare.books.model import Holding, Pod
from plugin.gpushare.books.placement import Refusal
from tests.plugin.gpushare.documents import CREATED_NS, LATER_NS, make_node, make_pod, report


def books(*units: int, holdings: tuple[Holding, ...] = (), at_ns: int = LATER_NS) -> Books:
    made = Books()
    made.put_node(make_node("n1", report(*units, holdings=holdings, at_ns=at_ns)))
    return made


def holding(pod: str, card: int, units: int, container: str = "c0") -> Holding:
    return Holding("jobs", pod, container, f"GPU-{card}", units)


def promised(of: Books, pod: Pod, now_s: float = 0.0) -> int:
    found = of.promise(pod, "n1", now_s)
    assert isinstance(found, Promise), found
    return found.card.number


def free(of: Books, now_s: float = 0.0) -> list[int]:
    return [each.free for each in of.use("n1", now_s).cards]


def bound(pod: Pod, card: int | None = None) -> Pod:
    """Return a pod as it is after it was bound, by this extender or by somebody else."""
    found = {pod_annotations.INDEX: str(card)} if card is not None else {}
    return pod._replace(node="n1", annotations=found)


def test_equal_pods_are_promised_units_of_their_own() -> None:
    made = books(10, 10)
    cards = [promised(made, make_pod(f"p{number}", 5)) for number in range(4)]
    assert sorted(cards) == [0, 0, 1, 1]
    assert free(made) == [0, 0]
    refused = made.promise(make_pod("p4", 5), "n1", 0.0)
    assert isinstance(refused, Refusal)
    assert "no card has 5 free units" in refused.reason


def test_a_promise_is_kept_until_the_pod_is_seen_on_its_node() -> None:
    made = books(10)
    pod = make_pod("p", 4)
    promised(made, pod)
    made.put_pod(pod)
    assert free(made) == [6], "the API server does not show it there yet"
    made.put_pod(bound(pod, 0))
    assert free(made) == [6], "not counted twice"
    made.remove_pod(pod.uid)
    assert free(made) == [10]


def test_a_promise_that_is_asked_for_again_is_the_same_one() -> None:
    made = books(10, 10)
    pod = make_pod("p", 6)
    assert promised(made, pod) == promised(made, pod) == 0
    assert free(made) == [4, 10]


def test_a_promise_of_which_nothing_is_heard_ends() -> None:
    made = books(10)
    promised(made, make_pod("p", 6))
    assert free(made, PROMISE_S - 1) == [4]
    assert free(made, PROMISE_S) == [10]


def test_a_list_that_is_older_than_a_promise_does_not_end_it() -> None:
    made = books(10)
    pod = make_pod("p", 6)
    promised(made, pod)
    made.replace_pods([])
    made.replace_pods([pod])
    assert free(made) == [4]


def test_units_are_on_the_card_that_the_kubelet_says_and_not_where_they_were_assumed() -> None:
    pod = make_pod("p", 6)
    made = books(10, 10, holdings=(holding("p", 1, 6),))
    made.put_pod(bound(pod, 0))
    assert free(made) == [10, 4]
    assert made.use("n1").on_the_way == ()


def test_two_equal_pods_whose_cards_were_swapped_are_told_apart() -> None:
    made = books(10, 10, holdings=(holding("a", 1, 6), holding("b", 0, 6)))
    made.put_pod(bound(make_pod("a", 6), 0))
    made.put_pod(bound(make_pod("b", 6), 1))
    changes = {pod.name: found for pod, found in made.corrections("n1")}
    assert {name: found[pod_annotations.INDEX] for name, found in changes.items()} == {"a": "1", "b": "0"}


def test_what_was_said_of_an_earlier_pod_of_the_same_name_does_not_count() -> None:
    made = books(10, 10, holdings=(holding("web-0", 1, 6),), at_ns=CREATED_NS - 1)
    made.put_pod(bound(make_pod("web-0", 6), 0))
    assert free(made) == [4, 10]
    assert made.use("n1").on_the_way == (6,)
    assert list(made.corrections("n1")) == []


@pytest.mark.parametrize(
    ("pod", "holdings", "expected", "on_the_way"),
    [
        pytest.param(make_pod("p", 6), (), [4, 10], (6,), id="nothing yet"),
        pytest.param(make_pod("p", 4, 2), (holding("p", 1, 4),), [10, 4], (2,), id="one container of two"),
        pytest.param(
            make_pod("p", 4, 2), (holding("p", 0, 4), holding("p", 1, 2, "c1")), [6, 8], (), id="on two cards"
        ),
        pytest.param(make_pod("p", 2, initial=6), (holding("p", 0, 2),), [4, 10], (4,), id="init container's rest"),
    ],
)
def test_what_the_kubelet_has_still_to_give_is_on_its_way(
    pod: Pod, holdings: tuple[Holding, ...], expected: list[int], on_the_way: tuple[int, ...]
) -> None:
    made = books(10, 10, holdings=holdings)
    made.put_pod(bound(pod, 0))
    assert (free(made), made.use("n1").on_the_way) == (expected, on_the_way)


def test_a_pod_that_somebody_else_bound_counts() -> None:
    made = books(10)
    made.put_pod(bound(make_pod("p", 6)))
    assert free(made) == [4]


def test_a_node_whose_kubelet_has_fewer_units_than_the_daemon_says_is_filled_with_care() -> None:
    made = Books()
    made.put_node(make_node("n1", report(10, 10), allocatable=12))
    assert isinstance(made.fits(make_pod("p", 10), "n1", 0.0), Refusal)
    assert not isinstance(made.fits(make_pod("p", 6), "n1", 0.0), Refusal)


@pytest.mark.parametrize(
    ("node", "words"),
    [
        pytest.param(None, "not known", id="no such node"),
        pytest.param(make_node("n1", None), "does not say which cards", id="no report"),
        pytest.param(make_node("n1", report(10), allocatable=0), "kubelet has no aliyun.com/gpu-mem", id="no units"),
    ],
)
def test_a_node_that_has_no_units_says_why(node: object, words: str) -> None:
    made = Books()
    if node is not None:
        made.put_node(node)  # type: ignore[arg-type] # a Node
    refused = made.fits(make_pod("p", 1), "n1", 0.0)
    assert isinstance(refused, Refusal)
    assert words in refused.reason
    assert refused.is_lasting


def test_annotations_are_corrected_once() -> None:
    made = books(10, 8, holdings=(holding("p", 1, 6),))
    pod = bound(make_pod("p", 6), 0)
    made.put_pod(pod)
    [(_, changes)] = made.corrections("n1")
    assert changes == {
        pod_annotations.INDEX: "1",
        pod_annotations.OF_CARD: "8",
        pod_annotations.OF_POD: "6",
        pod_annotations.ASSIGNED: "true",
        pod_annotations.ASSIGN_TIME: str(LATER_NS),
    }
    made.put_pod(pod._replace(annotations={**pod.annotations, **changes}))  # type: ignore[dict-item] # nothing is removed
    assert list(made.corrections("n1")) == []


def test_a_pod_on_two_cards_has_no_index_but_an_allocation() -> None:
    made = books(10, 10, holdings=(holding("p", 0, 4), holding("p", 1, 2, "c1")))
    made.put_pod(bound(make_pod("p", 4, 2), 0))
    [(_, changes)] = made.corrections("n1")
    assert changes[pod_annotations.INDEX] is None
    assert changes[pod_annotations.ALLOCATION] == '{"0":{"0":4},"1":{"1":2}}'
