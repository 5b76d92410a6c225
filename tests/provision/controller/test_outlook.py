"""What the controller would do about nodes, told from the API server alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest

from provision.controller.decision.fingerprint import (
    Part,
    differences,
    of_node,
    of_payload,
    of_spec,
    of_stack,
    of_try,
    part,
)
from provision.controller.decision.outlook import ASKED, DRIFTED, JOINS, NEVER, Comes, Moment, Outlook, outlook_of
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.interface.pause import Pause
from provision.rollout.model import Phase
from tests.provision.controller.fleet import PAYLOAD
from tests.provision.controller.samples import record, seen
from tests.provision.rollout.fakes import NOON, view
from tests.provision.rollout.status.test_derive import standing
from tests.provision.samples import make_stack

if TYPE_CHECKING:
    from provision.controller.nodes import SeenNode

SPEC = make_stack()
STACK = of_stack(SPEC, PAYLOAD)
NOW = Moment(now=NOON)
CLOSED = {"blackouts": [{"first": "2020-01-01", "last": "2099-01-01"}]}


def as_declared(name: str = "n1", stack: str = STACK, **more: object) -> SeenNode:
    return seen(name, as_declared=of_node(stack, seen(name)), **more)


def outlook(*nodes: SeenNode, moment: Moment = NOW, fingerprint: str = STACK, **rollout: object) -> Outlook:
    spec = make_stack(rollout=rollout) if rollout else SPEC
    members = {node.name: node for node in nodes}
    views = {node.name: view(node.name, node.record) for node in nodes}
    return outlook_of(spec, fingerprint, members, views, moment)


def only(found: Outlook) -> tuple[Comes, tuple[str, ...]]:
    (node,) = found.nodes
    return node.comes, node.why


def test_a_fingerprint_says_in_which_part_it_differs() -> None:
    other = make_stack(driver={"version": "570.133.20"})
    assert of_spec(other) != of_spec(SPEC)
    assert of_spec(make_stack(rollout={"maxParallel": 3})) == of_spec(SPEC), "how nodes are changed is no part of it"
    payload = replace_unit("[Unit]\nDescription=another")
    for found, parts in (
        (of_node(of_stack(other, PAYLOAD), seen()), (Part.DECLARED,)),
        (of_node(f"{of_spec(SPEC)}.{payload}", seen()), (Part.DEPLOYED,)),
        (of_node(STACK, seen(boot="another")), (Part.MACHINE,)),
        (of_node(of_stack(other, PAYLOAD), seen(kernel="6.13")), (Part.DECLARED, Part.MACHINE)),
        ("0123456789abcdef01234567", tuple(Part)),
        ("", tuple(Part)),
    ):
        assert differences(found, of_node(STACK, seen())) == parts
    assert part(STACK, Part.DEPLOYED) == of_payload(PAYLOAD)
    assert part("", Part.DEPLOYED) == ""


def replace_unit(unit: str) -> str:
    return of_payload(msgspec.structs.replace(PAYLOAD, unit=unit))


OTHER = of_stack(make_stack(driver={"version": "570.133.20"}), PAYLOAD)


@pytest.mark.parametrize(
    ("node", "comes", "why"),
    [
        pytest.param(as_declared(), Comes.AS_DECLARED, (), id="nothing is to do"),
        pytest.param(seen(), Comes.DUE, (NEVER,), id="never looked at"),
        pytest.param(seen(is_joining=True), Comes.DUE, (JOINS, NEVER), id="it joins"),
        pytest.param(as_declared(is_drifted=True), Comes.DUE, (DRIFTED,), id="it has drifted"),
        pytest.param(
            as_declared(record=record(Phase.FAILED, retry=True)), Comes.DUE, (ASKED,), id="another try is asked for"
        ),
        pytest.param(
            as_declared(record=record(Phase.DRAIN)), Comes.DUE, ("its upgrade is under way: drain",), id="in flight"
        ),
        pytest.param(
            as_declared(stack=OTHER),
            Comes.DUE,
            ("its stack declares something else than it was brought to",),
            id="another declaration",
        ),
        pytest.param(
            as_declared(boot="b2"), Comes.DUE, ("it was booted since, or has another kernel",), id="another boot"
        ),
        pytest.param(seen(is_skipped=True), Comes.SKIPPED, (NEVER,), id="skipped"),
        pytest.param(
            seen(failed=of_try(STACK, seen()), record=record(Phase.FAILED)),
            Comes.LEFT_FAILED,
            ("it broke",),
            id="left failed with this declaration",
        ),
        pytest.param(seen(problem="no record"), Comes.UNCLEAR, ("no record",), id="its record cannot be read"),
    ],
)
def test_what_becomes_of_a_node_and_why(node: SeenNode, comes: Comes, why: tuple[str, ...]) -> None:
    assert only(outlook(node)) == (comes, why)


def test_a_node_that_is_left_failed_and_one_that_is_skipped_say_what_ends_that() -> None:
    failed = seen("n1", failed=of_try(STACK, seen("n1")), record=record(Phase.FAILED))
    found = outlook(failed, seen("n2", is_skipped=True))
    assert "`grapnel retry n1`" in found.nodes[0].waits_for
    assert "`grapnel skip --undo n2`" in found.nodes[1].waits_for


def test_nodes_wait_for_what_the_engine_says_then_for_the_status_then_for_a_pause_or_a_window() -> None:
    at_work = replace(NOW, standing=standing(out=("n1",), n2="waits for n1: drain"))
    found = outlook(seen("n1"), seen("n2"), seen("n3"), moment=at_work)
    assert [node.comes for node in found.nodes] == [Comes.BUSY, Comes.DUE, Comes.DUE]
    assert [node.waits_for for node in found.nodes] == ["", "waits for n1: drain", ""]
    told = replace(NOW, told={"n1": "cannot be reached"}, pause=Pause(by="ada"))
    found = outlook(seen("n1"), seen("n2"), moment=told)
    assert [node.waits_for for node in found.nodes] == ["cannot be reached", Pause(by="ada").as_reason]
    closed = outlook(seen("n1"), **CLOSED)
    assert "blackout" in closed.closed
    assert closed.nodes[0].waits_for == closed.closed


def test_a_node_that_joins_waits_for_no_window_and_no_pause() -> None:
    found = outlook(seen("n1", is_joining=True), moment=replace(NOW, pause=Pause(by="ada")), **CLOSED)
    assert found.nodes[0].waits_for == ""
    assert found.closed == ""


def test_waves_are_those_of_the_nodes_that_are_due() -> None:
    nodes = [as_declared("n1"), *(seen(f"n{number}") for number in range(2, 6))]
    found = outlook(*nodes, waves=[{"size": 1}, {"size": "50%"}, {}])
    assert [node.wave for node in found.nodes] == [None, 0, 1, 1, 2]


def test_what_nobody_knows_to_be_deployed_is_no_reason() -> None:
    unknown = f"{of_spec(SPEC)}."
    assert only(outlook(as_declared(), fingerprint=unknown)) == (Comes.AS_DECLARED, ())
    assert only(outlook(seen(), fingerprint=unknown)) == (Comes.DUE, (NEVER,))


def test_a_node_whose_record_is_broken_has_no_part_in_waves() -> None:
    problem = NodeProblem(name="n1", message="broken", hint="look")
    found = outlook_of(SPEC, STACK, {"n1": seen(problem="broken")}, {"n1": problem}, NOW)
    assert found.named(Comes.UNCLEAR)
