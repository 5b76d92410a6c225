"""The record of what `apply` brings about, and the timer that compares the node with it."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from provision.declaration.fleet.facts.node import NodeFacts, Service
from provision.planning.drift import differences_of
from provision.planning.node_plan import Role
from provision.planning.planner.plan import plan_node
from provision.planning.render.declared import DECLARED_RECORD
from tests.provision.contracts.schemas import render_schema
from tests.provision.samples import (
    GPU,
    PAYLOAD,
    configured,
    edit_file,
    edit_package,
    edit_service,
    make_facts,
    make_module,
    make_stack,
    replace,
    simulate_apply,
    staged,
    steps,
    text_of,
)

if TYPE_CHECKING:
    from provision.declaration.spec.model import StackSpec
    from provision.planning.node_plan import NodePlan

TIMER, SERVICE = "grapnel-drift.timer", "grapnel-drift.service"
UNITS = {SERVICE: "[Service]\nType=oneshot\n", TIMER: "[Timer]\nOnUnitActiveSec=1h\n"}
WITH_TIMER = replace(PAYLOAD, units=UNITS)


def plan(facts: NodeFacts, stack: StackSpec | None = None) -> NodePlan:
    return plan_node(facts, stack or make_stack(), WITH_TIMER, name="gpu-17")


def applied(facts: NodeFacts, stack: StackSpec | None = None) -> NodeFacts:
    """Return the facts of a node with the timer, after as many passes as it takes."""
    for _ in range(3):
        facts = simulate_apply(facts, plan(facts, stack))
    return facts


def record(facts: NodeFacts) -> dict[str, Any]:
    return dict(json.loads(text_of(facts, DECLARED_RECORD)))


@pytest.fixture(scope="module")
def node() -> NodeFacts:
    return applied(make_facts())


def test_a_node_is_as_declared_with_its_record(node: NodeFacts) -> None:
    assert plan(node).is_empty
    said = record(node)
    jsonschema.validate(said, render_schema("declared"))
    assert (said["node"], said["manager"]) == ("gpu-17", "apt")
    assert {each["name"]: (each["version"], each["hold"]) for each in said["packages"]} == {
        name: (package.version, True)
        for name, package in node.packages.items()
        if name in {each["name"] for each in said["packages"]}
    }
    assert said["units"] == ["containerd.service", "grapnel-node.service", TIMER]
    assert said["software"] == {"hook": PAYLOAD.hook.digest, "node": PAYLOAD.node.digest}


def test_every_file_of_the_record_is_on_the_node_as_it_says(node: NodeFacts) -> None:
    said = {each["path"]: (each["sha256"], each["mode"]) for each in record(node)["files"]}

    assert {f"/etc/systemd/system/{name}" for name in UNITS} < said.keys()
    for path, (digest, mode) in said.items():
        state = node.files[path]
        assert state is not None
        assert (hashlib.sha256(text_of(node, path).encode()).hexdigest(), state.mode) == (digest, mode)


def test_nothing_of_it_is_planned_without_a_timer() -> None:
    assert configured().file(DECLARED_RECORD) is None


def test_a_running_daemon_gets_the_timer_without_a_restart() -> None:
    found = plan(configured())

    assert steps(found.items) == [
        ("write", f"/etc/systemd/system/{SERVICE}"),
        ("write", f"/etc/systemd/system/{TIMER}"),
        ("enable", TIMER),
        ("write", DECLARED_RECORD),
    ]
    variables = found.roles.node_daemon
    assert variables is not None
    assert (variables.node_daemon_restart, variables.node_daemon_timers) == (False, (TIMER,))
    assert variables.node_daemon_files[-1].path == DECLARED_RECORD


def test_a_timer_that_somebody_stopped_is_started(node: NodeFacts) -> None:
    assert steps(plan(edit_service(node, TIMER, active="inactive")).items) == [("start", TIMER)]


def test_a_record_that_somebody_removed_is_written_again(node: NodeFacts) -> None:
    found = plan(edit_file(node, DECLARED_RECORD, None))

    assert steps(found.items) == [("write", DECLARED_RECORD)]
    assert [each.reason for each in differences_of(found)] == [f"{DECLARED_RECORD} is absent"]


def test_the_record_of_another_declaration_is_no_difference_of_its_own(node: NodeFacts) -> None:
    wanted = make_stack(driver={"hold": False})
    found = plan(node, wanted)

    assert ("write", DECLARED_RECORD) in steps(found.items)
    assert [each.kind.value for each in differences_of(found)] == ["hold"]


def test_what_is_restored_as_it_was_leaves_the_record_alone(node: NodeFacts) -> None:
    assert steps(plan(edit_package(node, "libcuda1", hold=False)).items) == [("hold", "driver packages")]


def test_the_record_waits_for_a_driver_that_waits_for_its_drain(node: NodeFacts) -> None:
    busy = replace(node, module=make_module("550.163.01", "535.309.01"), gpus=(GPU,))
    other = make_stack(driver={"version": "535.309.01"})
    first = plan(busy, other)

    last = first.items[-1]
    assert (last.action, last.target, last.deferred) == ("write", DECLARED_RECORD, True)
    daemon = first.roles.node_daemon
    assert daemon is None or DECLARED_RECORD not in {file.path for file in daemon.node_daemon_files}


def test_a_daemon_that_is_not_declared_has_no_timer(node: NodeFacts) -> None:
    off = make_stack(plugin={"enabled": False})
    found = plan(node, off)
    stopped = Service(load="loaded", active="inactive", enabled="disabled")

    assert steps(found.items) == [
        ("disable", "grapnel-node.service"),
        ("disable", TIMER),
        ("remove", DECLARED_RECORD),
    ]
    assert plan(simulate_apply(node, found), off).is_empty
    half = replace(node, services={**node.services, TIMER: stopped, "grapnel-node.service": stopped})
    assert steps(plan(half, off).items) == [("remove", DECLARED_RECORD)]


def test_a_staged_driver_is_in_the_record_with_the_pass_that_swaps_it() -> None:
    facts = staged(make_facts())
    found = plan(facts)

    assert (DECLARED_RECORD in {item.target for item in found.items}) is not any(item.deferred for item in found.items)


def test_some_of_the_roles_write_no_record_as_it_is_of_all() -> None:
    found = plan_node(make_facts(), make_stack(), WITH_TIMER, roles=(Role.NODE_DAEMON,))

    assert DECLARED_RECORD not in {item.target for item in found.items}
    assert ("enable", TIMER) in steps(found.items)
