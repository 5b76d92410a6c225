"""Annotations of the Node: single ones, beside those of others, and again when somebody took them away."""

from __future__ import annotations

import pytest

from plugin.publication.node_object.conditions import conditions_of
from tests.plugin.node_object.simulation import Simulation
from tests.plugin.node_object.states import observed

KEY, OTHER = "grapnel.dev/memory-units", "volumes.kubernetes.io/controller-managed-attach-detach"
HOUR_S = 3600.0


def running() -> Simulation:
    node = Simulation()
    node.session.annotate({KEY: "one"})
    node.settle(1)
    return node


def test_one_is_set_beside_those_of_others() -> None:
    node = running()
    assert node.annotations == {OTHER: "true", KEY: "one"}


def test_one_that_says_the_same_is_not_sent_again() -> None:
    node = running()
    assert not node.session.annotate({KEY: "one"})
    node.settle(HOUR_S)
    assert node.count("patch nodes") == 1


def test_one_that_is_to_go_is_removed() -> None:
    node = running()
    node.session.annotate({KEY: None})
    node.settle(1)
    assert node.annotations == {OTHER: "true"}
    node.settle(HOUR_S)
    assert node.count("patch nodes") == 2


@pytest.mark.parametrize("value", [pytest.param("somebody else's", id="changed"), pytest.param("", id="removed")])
def test_one_that_somebody_touched_is_set_again_with_the_next_heartbeat(value: str) -> None:
    node = running()
    node.session.show(conditions_of(observed("", ""), ""))
    node.settle(1)
    node.annotations = {OTHER: "true", **({KEY: value} if value else {})}
    node.settle(2 * HOUR_S)
    assert node.annotations[KEY] == "one"


def test_another_node_of_the_same_name_gets_it_as_well() -> None:
    node = running()
    node.recreate()
    node.session.annotate({KEY: "two"})
    node.settle(HOUR_S)
    assert node.annotations == {KEY: "two"}


def test_it_is_tried_again_after_an_outage() -> None:
    node = running()
    node.failing = 0
    node.session.annotate({KEY: "two"})
    node.settle(600)
    node.failing = None
    node.settle(600)
    assert node.annotations[KEY] == "two"


def test_one_that_is_always_refused_does_not_keep_the_rest_from_being_said() -> None:
    node = running()
    node.is_full = True
    node.session.annotate({KEY: "two"})
    node.session.show(conditions_of(observed("", ""), ""))
    node.settle(12 * HOUR_S)
    assert node.count("patch nodes/status") > 40
    assert node.count("get nodes") < 250
