"""Which driver a node's daemon says that it has, by the Node's conditions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from plugin.devices.inventory import Inventory
from plugin.devices.observer import Observation
from plugin.publication.node_object.conditions import conditions_of
from provision.cluster.kubernetes.nodes.marks import LOOKED_AT
from provision.cluster.kubernetes.nodes.node_view import DRIVER_READY, reported_driver
from provision.cluster.kubernetes.objects.core import Condition, Metadata
from provision.cluster.kubernetes.objects.nodes import Node, NodeStatus
from provision.rollout.model import Phase, Record

NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)
VERSION = "535.309.01"
FEATURE_LABELS = {"nvidia.com/cuda.driver-version.full": "470.57.02"}


def at(minutes: float) -> str:
    return (NOON + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


def ready(heard: str | None) -> Condition:
    return Condition(type="Ready", status="True", last_heartbeat_time=heard)


def answers(when: str | None, **other: str) -> Condition:
    given = {"status": "True", "message": f"driver {VERSION} answers", **other}
    return Condition(type=DRIVER_READY, last_heartbeat_time=when, **given)


def node(*conditions: Condition) -> Node:
    return Node(metadata=Metadata(name="n1", labels=FEATURE_LABELS), status=NodeStatus(conditions=conditions))


def looked_at(minutes: float, *conditions: Condition) -> Node:
    there = node(*conditions)
    return replace(there, metadata=replace(there.metadata, annotations={LOOKED_AT: at(minutes)}))


def done(minutes: float) -> Record:
    since = NOON + timedelta(minutes=minutes)
    return Record(phase=Phase.DONE, target=VERSION, began=since - timedelta(minutes=5), since=since)


def test_what_the_daemon_says_now_counts() -> None:
    assert reported_driver(node(ready(at(0)), answers(at(-12))), None) == VERSION
    assert reported_driver(node(ready(at(0)), answers(at(-12))), done(-20)) == VERSION
    assert reported_driver(node(ready(None), answers(at(-12))), None) == VERSION
    assert reported_driver(looked_at(-13, ready(at(0)), answers(at(-12))), None) == VERSION


def test_what_was_said_before_the_node_was_looked_at_counts_no_more() -> None:
    """A node was as declared, and a daemon that may not speak any more had another driver at its last word."""
    assert not reported_driver(looked_at(-12, ready(at(0)), answers(at(-12))), None)


def test_the_daemons_own_words_are_understood() -> None:
    said = conditions_of(Observation(Inventory(driver_version=VERSION)), "")
    (words,) = [each.message for each in said if each.kind == DRIVER_READY]
    assert words == answers(None).message


@pytest.mark.parametrize(
    ("conditions", "record"),
    [
        pytest.param((ready(at(0)),), None, id="labels alone: whoever made them may be gone"),
        pytest.param((ready(at(0)), answers(at(-12))), done(-10), id="before its last upgrade ended"),
        pytest.param((ready(at(0)), answers(at(-31))), None, id="the daemon says nothing any more"),
        pytest.param((ready(at(0)), answers(at(0), status="Unknown", message="released")), None, id="it is released"),
        pytest.param((ready(at(0)), answers(None)), None, id="nobody knows when"),
        pytest.param((ready(at(0)), answers("soon")), None, id="it is no time"),
        pytest.param((ready(at(0)), answers("2026-11-28T12:00:00")), None, id="it is a time of nowhere"),
        pytest.param((ready(at(0)), answers(at(0), message="driver x; y answers")), None, id="it is no version"),
    ],
)
def test_nothing_is_known_where_it_does_not(conditions: tuple[Condition, ...], record: Record | None) -> None:
    assert not reported_driver(node(*conditions), record)
