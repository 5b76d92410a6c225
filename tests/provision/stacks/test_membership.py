"""Which stack owns which Node."""

from __future__ import annotations

from provision.controller.stacks.membership import members
from provision.controller.stacks.model import Unreadable
from provision.declaration.spec.values.label_selector import LabelSelector, Requirement
from tests.provision.stacks.samples import stack

LABELS = {"a1": {"pool": "a"}, "a2": {"pool": "a", "rack": "1"}, "b1": {"pool": "b"}, "none": {}}


def test_each_stack_owns_what_its_selector_selects() -> None:
    found = members([stack("a"), stack("b")], LABELS)
    assert found.owned == {"a": ("a1", "a2"), "b": ("b1",)}
    assert not found.disputed


def test_what_two_select_belongs_to_neither() -> None:
    rack = stack("rack", selector={"matchLabels": {"rack": "1"}})
    found = members([stack("a"), rack], LABELS)
    assert found.owned == {"a": ("a1",), "rack": ()}
    assert found.disputed == {"a2": ("a", "rack")}
    assert found.claimed_twice("rack") == ("a2",)
    assert found.claimed_twice("b") == ()


def test_what_two_select_is_selected_by_both() -> None:
    found = members([stack("a"), stack("rack", selector={"matchLabels": {"rack": "1"}})], LABELS)
    assert [found.selects("a", node) for node in ("a1", "a2", "b1")] == [True, True, False]
    assert [found.selects("rack", node) for node in ("a1", "a2")] == [False, True]


def test_a_stack_that_is_going_lets_its_nodes_go() -> None:
    found = members([stack("a", is_going=True), stack("all", selector={})], LABELS)
    assert found.owned == {"all": tuple(sorted(LABELS)), "a": ()}
    assert not found.disputed


def test_a_stack_that_is_going_has_what_no_other_one_selects() -> None:
    rack = stack("rack", selector={"matchLabels": {"rack": "1"}})
    found = members([stack("z", selector={}, is_going=True), stack("a", is_going=True), rack], LABELS)
    assert found.owned == {"a": ("a1",), "rack": ("a2",), "z": ("b1", "none")}


def test_a_stack_that_cannot_be_used_keeps_its_nodes_from_others() -> None:
    """They had gone over to the stack that selects everything, and to its driver, for a slip in their own."""
    mine = LabelSelector((Requirement("pool", frozenset({"a"})),))
    broken = Unreadable(name="a", uid="u", generation=1, reasons=("no",), selector=mine)
    found = members([broken, stack("all", selector={})], LABELS)
    assert found.owned["all"] == ("b1", "none")
    assert found.claimed_twice("all") == ("a1", "a2")
    assert members([Unreadable(name="a", uid="u", generation=1, reasons=("no",))], LABELS).owned == {}


def test_what_has_the_same_labels_as_before_is_taken_from_then() -> None:
    first = members([stack("a"), stack("b")], LABELS)
    moved = {**LABELS, "a2": {"pool": "b"}}
    del moved["none"]
    second = members([stack("b"), stack("a")], moved, first)
    assert second.owned == {"a": ("a1",), "b": ("a2", "b1")}
    assert second.claims["a1"] is first.claims["a1"]
    wider = stack("a", selector={}, generation=2)
    assert members([wider, stack("b")], moved, second).owned == {"a": ("a1",), "b": ()}
    assert members([], moved, second).owned == {}
