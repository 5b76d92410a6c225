"""Nodes of a zone are not out of service together, zones take turns where that is declared, and order is kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provision.declaration.spec.model import Order, Rollout, Zones
from provision.rollout.decision.decide import decide
from provision.rollout.decision.order.zones import NOWHERE, with_places
from provision.rollout.decision.policy import Policy, ZonePolicy, strictest
from provision.rollout.decision.snapshot import Decision, NodeState, Snapshot, Write
from provision.rollout.model import Phase
from tests.provision.rollout.fakes import MINUTE, NOON, pod, record, state, view

NOW = NOON + 10 * MINUTE
ZONE = "topology.kubernetes.io/zone"
ONE_EACH = ZonePolicy(max_unavailable=1)
IN_TURN = ZonePolicy(one_at_a_time=True)


def at(*nodes: NodeState, zones: ZonePolicy, **policy: object) -> Decision:
    limits = {"max_parallel": 99, "max_unavailable": 99, **policy}
    return decide(Snapshot(nodes=nodes, began=NOON), Policy(**limits, zones=zones), NOW)  # type: ignore[arg-type]  # fields of the policy, by name


def new(name: str, zone: str, **seen: object) -> NodeState:
    turn = {"a": 0, "b": 1}.get(zone, 2)
    return state(name, view(name, **seen), zone=zone, zone_turn=turn)


def flying(node: NodeState) -> NodeState:
    return replace(node, view=view(node.name, record(Phase.SWAP)), is_busy=True)


def done(node: NodeState) -> NodeState:
    return replace(node, view=view(node.name, record(Phase.DONE)), is_disruptive=False)


def begun(decision: Decision) -> list[str]:
    return [action.node for action in decision.actions if isinstance(action, Write)]


def test_as_many_of_each_zone_as_may_be_out() -> None:
    decision = at(new("n1", "a"), new("n2", "a"), new("n3", "b"), zones=ONE_EACH)
    assert begun(decision) == ["n1", "n3"]
    assert decision.waiting == {"n2": "1 of 2 nodes of zone a may be unavailable, and 1 are"}


@pytest.mark.parametrize("seen", [{"is_ready": False}, {"is_cordoned": True}], ids=["not ready", "cordoned"])
def test_outages_of_others_count_in_their_zone(seen: dict[str, object]) -> None:
    ill = replace(new("n1", "a", **seen), is_disruptive=False)
    assert begun(at(ill, new("n2", "a"), new("n3", "b"), zones=ONE_EACH)) == ["n3"]


def test_a_cordoned_node_is_out_already_and_begins() -> None:
    assert begun(at(new("n1", "a", is_cordoned=True), new("n2", "a"), zones=ONE_EACH)) == ["n1"]


def test_a_percentage_is_of_the_zone() -> None:
    nodes = [new(f"n{number}", "a") for number in range(4)] + [new(f"m{number}", "b") for number in range(2)]
    assert begun(at(*nodes, zones=ZonePolicy(max_unavailable="50%"))) == ["n0", "n1", "m0"]


def test_the_limit_of_the_fleet_holds_beside_that_of_zones() -> None:
    assert begun(at(new("n1", "a"), new("n2", "b"), zones=ONE_EACH, max_unavailable=1)) == ["n1"]


def test_zones_take_turns() -> None:
    first = at(new("n1", "b"), new("n2", "a"), new("n3", "a"), zones=IN_TURN, max_parallel=1)
    assert begun(first) == ["n2"]
    assert first.waiting["n1"] == "waits for n2: cordon"
    second = at(new("n1", "b"), flying(new("n2", "a")), new("n3", "a"), zones=IN_TURN)
    assert begun(second) == ["n3"]
    assert second.waiting == {"n1": "waits for zone a: n2"}
    third = at(new("n1", "b"), done(new("n2", "a")), done(new("n3", "a")), zones=IN_TURN)
    assert begun(third) == ["n1"]


@pytest.mark.parametrize(
    "seen",
    [{"is_ready": False}, {"is_skipped": True}, {"held_by": "kured is rebooting it"}],
    ids=lambda seen: next(iter(seen)),
)
def test_a_zone_is_not_waited_for_when_what_is_left_of_it_cannot_begin(seen: dict[str, object]) -> None:
    assert begun(at(new("n1", "a", **seen), new("n2", "b"), zones=IN_TURN)) == ["n2"]


def test_a_higher_priority_does_not_bring_a_node_before_the_zone_whose_turn_it_is() -> None:
    assert begun(at(new("n1", "a"), new("n2", "b", priority=1000), zones=IN_TURN)) == ["n1"]


def places(rollout: Rollout, *zones: str | None) -> list[NodeState]:
    states = [
        state(f"n{number}", view(f"n{number}", labels={} if zone is None else {ZONE: zone}))
        for number, zone in enumerate(zones)
    ]
    return with_places(states, rollout, {})


def test_zones_are_labels_of_nodes_and_a_node_without_one_escapes_no_limit() -> None:
    placed = places(Rollout(zones=Zones(node_label=ZONE)), "a", None, "b")
    assert [node.zone for node in placed] == ["a", NOWHERE, "b"]


def test_zones_are_groups_of_the_inventory() -> None:
    states = [state("n1"), state("n2"), state("n3")]
    groups = {"n1": ("gpu", "east"), "n2": ("west", "east"), "n3": ("gpu",)}
    placed = with_places(states, Rollout(zones=Zones(groups=("west", "east"))), groups)
    assert [node.zone for node in placed] == ["east", "west", NOWHERE]


def test_the_order_takes_one_of_each_zone_in_turn() -> None:
    placed = places(Rollout(zones=Zones(node_label=ZONE), order=Order.SPREAD), "a", "a", "a", "b", "b")
    assert begun(at(*placed, zones=ZonePolicy())) == ["n0", "n3", "n1", "n4", "n2"]


def test_the_order_takes_nodes_first_that_have_no_pods_to_lose() -> None:
    states = [
        state("n1", view("n1", gpu_pods=(pod("a"), pod("b")))),
        state("n2"),
        state("n3", view("n3", gpu_pods=(pod("c"),))),
    ]
    placed = with_places(states, Rollout(order=Order.EMPTY_FIRST), {})
    assert begun(at(*placed, zones=ZonePolicy())) == ["n2", "n3", "n1"]
    assert with_places(states, Rollout(), {}) == states


def test_zones_of_the_declaration_become_the_policy() -> None:
    zones = Zones(node_label=ZONE, max_unavailable="10%", one_at_a_time=True)
    assert strictest([Rollout(zones=zones)], 8).zones == ZonePolicy(max_unavailable="10%", one_at_a_time=True)
    assert strictest([Rollout()], 8).zones is None
