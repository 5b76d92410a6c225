"""Any order of binds, admissions, reports, ends and restarts: no container is ever left without a card.

The kubelet chooses cards against the extender wherever it can, and its reports are late. What is checked is that a pod
that the extender bound is never refused by its kubelet, that no id is given twice, and that units come back.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from plugin.gpushare.books import pod_annotations
from plugin.gpushare.books.book import Books, Promise
from plugin.gpushare.books.placement import Refusal
from tests.plugin.gpushare.documents import CREATED_NS, cards, make_node, make_pod
from tests.plugin.gpushare.kubelet import Kubelet, packed, spread

if TYPE_CHECKING:
    from plugin.gpushare.books.model import Card, Pod
    from tests.plugin.gpushare.kubelet import Choose

SIZES = st.lists(st.integers(3, 7), min_size=1, max_size=1) | st.lists(st.integers(1, 4), min_size=2, max_size=2)


class Cluster(RuleBasedStateMachine):
    """One node; `api` is what the API server has, `kubelet` what is so."""

    def __init__(self) -> None:
        super().__init__()
        self.kubelet = Kubelet(cards(10, 10))
        self.api: dict[str, Pod] = {}
        self.waiting: list[str] = []  # bound, and not admitted yet
        self.at_ns = CREATED_NS + 1
        self.number = 0
        self.node = make_node("n1", self.kubelet.report(self.at_ns))
        self.books = Books()
        self.restart()

    @rule()
    def restart(self) -> None:
        """The extender is killed, and another one reads what the API server has."""
        self.books = Books()
        self.books.replace_nodes([self.node])
        self.books.replace_pods(self.api.values())

    @rule(sizes=SIZES, is_seen=st.booleans())
    def bind(self, sizes: list[int], *, is_seen: bool) -> None:
        """Bind a pod. Seen: the watch has told of it already."""
        promise = self.promise(sizes)
        if isinstance(promise, Refusal):
            return
        pod = promise.pod
        bound = pod._replace(node="n1", annotations=pod_annotations.assumed(pod, promise.card, 1))
        self.api[pod.uid] = bound
        self.waiting.append(pod.uid)
        self.books.put_pod(bound if is_seen else pod)

    @rule(sizes=SIZES)
    def is_killed_before_a_bind(self, sizes: list[int]) -> None:
        """The promise dies with the extender."""
        self.promise(sizes)
        self.restart()

    def promise(self, sizes: list[int]) -> Promise | Refusal:
        self.number += 1
        return self.books.promise(make_pod(f"p{self.number}", *sizes), "n1", 0.0)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), choose=st.sampled_from([packed, spread]))
    def admit(self, data: st.DataObject, choose: Choose) -> None:
        """The kubelet admits any of the pods that wait, on a card that the extender would take, or on another one."""
        uid = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(uid)
        self.kubelet.admit(self.api[uid], choose)

    @rule()
    def report(self) -> None:
        """The daemon asks the kubelet, and the extender hears of it."""
        self.at_ns += 1
        self.node = make_node("n1", self.kubelet.report(self.at_ns))
        self.books.put_node(self.node)

    @rule()
    def tell(self) -> None:
        """The watch tells all that the API server has."""
        for pod in self.api.values():
            self.books.put_pod(pod)

    @precondition(lambda self: self.api)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """A pod ends."""
        uid = data.draw(st.sampled_from(sorted(self.api)))
        self.kubelet.end(uid)
        if uid in self.waiting:
            self.waiting.remove(uid)
        del self.api[uid]
        self.books.remove_pod(uid)

    @invariant()
    def no_card_is_over_full(self) -> None:
        for each in self.books.use("n1").cards:
            assert each.held <= each.card.units

    def teardown(self) -> None:
        """Everything that ended is free again."""
        for uid in list(self.api):
            self.kubelet.end(uid)
            self.books.remove_pod(uid)
        self.books.expire(1e9)
        self.report()
        assert [each.free for each in self.books.use("n1", 1e9).cards] == [10, 10]


TestCluster = pytest.mark.slow(Cluster.TestCase)
Cluster.TestCase.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=40), st.integers(0, 2**32))
def test_promises_never_exceed_a_card(sizes: list[int], seed: int) -> None:
    chance = random.Random(seed)
    books = Books()
    made = cards(16, 10, 24)
    books.put_node(make_node("n1", Kubelet(made).report(CREATED_NS + 1)))
    kept: dict[str, tuple[Card, int]] = {}
    for number, units in enumerate(sizes):
        promise = books.promise(make_pod(f"p{number}", units), "n1", 0.0)
        if isinstance(promise, Promise):
            kept[promise.pod.uid] = (promise.card, units)
        if kept and chance.random() < 0.3:
            uid = chance.choice(sorted(kept))
            books.break_promises(uid)
            del kept[uid]
    for card in made:
        assert sum(units for kept_card, units in kept.values() if kept_card == card) <= card.units
