"""The orchestration with the real planner, on nodes whose facts change as the roles would change them."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import pytest

from provision.apply.context import ApplyContext
from provision.apply.converge import assess
from provision.apply.declarations import Declarations
from provision.apply.fleet import apply_all
from provision.apply.model import Status
from provision.apply.playbooks import Playbooks, plan_variables
from provision.apply.runner import Event, RunFinished, RunRequest, RunStatus, TaskDone, TaskOutcome
from provision.cli.change.apply import apply_nodes
from provision.cli.change.stage import stage_fleet
from provision.planning.node_plan import NodePlan
from provision.planning.planner.plan import plan_node
from tests.provision.apply.fakes import COLLECTION, Watcher, scope_of
from tests.provision.rollout.fakes import FakeCluster
from tests.provision.rollout.fakes import FakeNode as ClusterNode
from tests.provision.samples import (
    GPU,
    PAYLOAD,
    configured,
    edit_package,
    make_facts,
    make_module,
    make_stack,
    replace,
    simulate_apply,
    staged,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec


OLD, NEW = "550.107.02", "550.163.01"
NEW_STACK = make_stack(driver={"version": NEW})


@dataclass
class SimulatedFleet:
    """Runs the playbooks on facts; plans are read after passing through the variables of a run."""

    nodes: dict[str, NodeFacts]
    applied: int = 0
    runs: list[str] = field(default_factory=list)

    def run(self, request: RunRequest, _cancel: threading.Event) -> Iterator[Event]:
        self.runs.append(request.playbook.stem)
        for name in request.nodes:
            if "grapnel_expectation" in request.extra_vars:
                yield TaskDone(name, "verify", TaskOutcome.OK, values={"daemon": b'{"ok": true}'})
            if request.playbook.stem in ("release", "resume"):
                yield TaskDone(name, "ask", TaskOutcome.OK, values={"daemon": b'{"released": true, "holders": []}'})
                continue
            if request.playbook.stem == "stage":
                self.nodes[name] = staged(self.nodes[name], NEW_STACK)
            if request.playbook.stem == "apply":
                plan = msgspec.json.decode(json.dumps(request.extra_vars["grapnel_plan"]), type=NodePlan)
                self.nodes[name] = simulate_apply(self.nodes[name], plan)
                self.applied += 1
                yield TaskDone(name, "carry the plan out", TaskOutcome.CHANGED)
            yield TaskDone(
                name, "gather facts", TaskOutcome.OK, values={"facts": msgspec.json.encode(self.nodes[name])}
            )
        yield RunFinished(RunStatus.SUCCESSFUL)


def machinery_for(fleet: SimulatedFleet, stack: StackSpec) -> ApplyContext:
    def plan(name: str, facts: NodeFacts, _cancel: threading.Event) -> NodePlan:
        return plan_node(facts, stack, PAYLOAD, name=name)

    playbooks = Playbooks(collection=COLLECTION)
    return ApplyContext(runner=fleet, plan=plan, playbooks=playbooks, declarations=Declarations({"n1": stack}))


@pytest.mark.parametrize(
    ("facts", "status", "passes"),
    [
        pytest.param(make_facts(), Status.CONVERGED, 1, id="bare machine"),
        pytest.param(
            edit_package(configured(), "libcuda1", version="535.261.03-1"), Status.CONVERGED, 1, id="drifted package"
        ),
        pytest.param(configured(), Status.UNCHANGED, 0, id="as declared"),
    ],
)
def test_a_node_converges_with_the_real_planner(facts: NodeFacts, status: Status, passes: int) -> None:
    fleet = SimulatedFleet({"n1": facts})
    made, cancel = machinery_for(fleet, make_stack()), threading.Event()
    answers = assess(made, fleet.nodes, Watcher(), cancel)
    (result,) = apply_all(made, answers, Watcher(), parallel=1, cancel=cancel)
    assert (result.status, result.passes, fleet.applied) == (status, passes, passes)


def other_driver() -> NodeFacts:
    """Return a node that is as declared, but for the driver: its kernel has another version."""
    return replace(configured(), gpus=(GPU,), module=make_module(OLD, NEW))


@pytest.mark.parametrize(
    ("facts", "runs"),
    [
        pytest.param(staged(other_driver()), ["facts", "release", "apply", "resume"], id="staged before"),
        pytest.param(other_driver(), ["facts", "stage", "release", "apply", "resume"], id="staged by the apply"),
    ],
)
def test_a_driver_change_costs_no_more_starts_of_ansible_than_it_has_parts(facts: NodeFacts, runs: list[str]) -> None:
    """Each start takes seconds, and all but two of them are time out of service."""
    fleet = SimulatedFleet({"n1": facts})
    cluster = FakeCluster({"n1": ClusterNode()}, classes=["nvidia"])
    scope = scope_of(cluster, driver={"version": NEW, "kernelModule": "none"})
    code = apply_nodes(machinery_for(fleet, NEW_STACK), scope, parallel=1, consent=True)
    assert (code, fleet.runs) == (0, runs)
    assert fleet.nodes["n1"].module.version == NEW
    assert plan_node(fleet.nodes["n1"], NEW_STACK, PAYLOAD).is_empty


def test_staging_prepares_the_driver_and_changes_nothing_that_runs(capsys: pytest.CaptureFixture[str]) -> None:
    fleet = SimulatedFleet({"n1": other_driver()})
    cluster = FakeCluster({"n1": ClusterNode()}, classes=["nvidia"])
    scope = scope_of(cluster, driver={"version": NEW, "kernelModule": "none"})

    code = stage_fleet(machinery_for(fleet, NEW_STACK), scope, parallel=1)

    assert (code, fleet.runs) == (0, ["facts", "stage"])
    assert fleet.nodes["n1"] == staged(other_driver(), NEW_STACK)
    assert "staged" in capsys.readouterr().out


def test_a_version_that_does_not_exist_is_found_before_anything_is_changed() -> None:
    fleet = SimulatedFleet({"n1": make_facts()})
    made, cancel = machinery_for(fleet, make_stack(driver={"version": "999.1"})), threading.Event()
    answers = assess(made, fleet.nodes, Watcher(), cancel)
    (result,) = apply_all(made, answers, Watcher(), parallel=1, cancel=cancel)
    assert result.status is Status.REFUSED
    assert result.failure is not None
    assert "999.1" in result.failure.message
    assert fleet.applied == 0


def test_variables_of_a_run_are_plain_data_of_the_roles_that_have_something_to_do() -> None:
    plan = plan_node(make_facts(), make_stack(), PAYLOAD, name="n1")
    variables = plan_variables(plan)
    assert json.loads(json.dumps(variables))["grapnel_plan"]["node"] == "n1"
    assert variables["driver_version"] == "550.163.01"
    empty = plan_variables(plan_node(configured(), make_stack(), PAYLOAD, name="n1"))
    assert set(empty) == {"grapnel_plan"}
