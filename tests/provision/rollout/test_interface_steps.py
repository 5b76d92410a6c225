"""What is run on a node for another interface: its plan while it serves, then a look whether pods can be given GPUs."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from provision.apply.declarations import Declarations
from provision.apply.model import Status
from provision.declaration.spec.model import GpuInterface
from provision.planning.node_plan import Disruption, NodePlan
from provision.rollout.model import Origin, Phase
from provision.rollout.step import StepOutcome
from provision.rollout.steps.interface_steps import InterfaceSteps
from provision.rollout.steps.node_steps import NodeSteps
from tests.provision.apply.fakes import FakeFleet, FakeNode, Watcher, context, item, plan_drain
from tests.provision.rollout.fakes import NEW
from tests.provision.samples import make_stack

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts

DRA = {"interface": "dra", "kubernetesApi": "/etc/kubernetes/kubelet.conf"}
TRAIN: dict[str, object] = {"pid": 7, "command": "train", "unit": None, "pod_uid": "u1", "devices": ["/dev/nvidia0"]}
BACK = Origin(NEW, None, GpuInterface.DEVICE_PLUGIN)


def make_steps(fleet: FakeFleet) -> InterfaceSteps:
    """Return steps of a node that is to give its GPUs by claims."""
    declarations = Declarations({"n1": make_stack(plugin=DRA)})

    def plan(node: str, facts: NodeFacts) -> NodePlan:
        wanted = declarations.stacks[node].plugin.interface.value
        items = (item(wanted, disruption=Disruption.CHANGE_OVER),) if wanted not in facts.packages else ()
        return NodePlan(node=node, items=items)

    made = replace(context(fleet, plan), declarations=declarations)
    return InterfaceSteps(NodeSteps(made, declarations.stacks), frozenset({"n1"}))


def run(steps: InterfaceSteps, phase: Phase, back: Origin | None = None) -> StepOutcome:
    return steps.run("n1", phase, Watcher(), threading.Event(), back)


def test_a_node_changes_over_while_its_gpus_are_in_use_and_is_looked_at() -> None:
    node = FakeNode(holders=[TRAIN])
    steps = make_steps(FakeFleet({"n1": node}))

    swapped = run(steps, Phase.SWAP)
    assert swapped.failure is None
    assert swapped.swapped is not None
    assert (swapped.swapped.status, swapped.swapped.changes) == (Status.CONVERGED, 1)
    assert node.packages == ["dra"]
    assert run(steps, Phase.VERIFY) == StepOutcome()
    assert node.verbs == ["offered"], "nothing was released, and nothing resumed"
    assert run(steps, Phase.SWAP).failure is None
    assert node.packages == ["dra"]


def test_a_node_that_does_not_offer_its_gpus_fails_and_the_way_back_leads_to_the_interface_before() -> None:
    node = FakeNode(packages=["dra"], broken="offered")
    fleet = FakeFleet({"n1": node})
    steps = make_steps(fleet)

    failed = run(steps, Phase.VERIFY)
    assert failed.failure is not None
    assert failed.failure.status is Status.FAILED

    node.broken = ""
    assert run(steps, Phase.ROLLBACK, BACK) == StepOutcome()
    assert node.packages == ["dra", "devicePlugin"]
    assert run(steps, Phase.VERIFY, BACK) == StepOutcome()
    assert steps.steps.stacks["n1"].plugin.interface is GpuInterface.DRA, "what is declared stays so"


def test_what_takes_the_node_out_of_service_is_not_done_here() -> None:
    node = FakeNode()
    fleet = FakeFleet({"n1": node})
    made = replace(context(fleet, plan_drain), declarations=Declarations({"n1": make_stack(plugin=DRA)}))
    steps = InterfaceSteps(NodeSteps(made, made.declarations.stacks), frozenset({"n1"}))

    outcome = run(steps, Phase.SWAP)

    assert outcome.failure is not None
    assert node.packages == []


def test_a_node_that_cannot_be_asked_is_asked_again_later() -> None:
    steps = make_steps(FakeFleet({"n1": FakeNode(reachable=False)}))
    outcome = run(steps, Phase.SWAP)
    assert outcome.failure is not None
    assert outcome.failure.status is Status.UNREACHABLE


def test_the_steps_of_other_nodes_are_as_ever() -> None:
    node = FakeNode(holders=[TRAIN])
    steps = replace(make_steps(FakeFleet({"n1": node})), changing=frozenset())
    assert run(steps, Phase.RELEASE).holders
    assert node.verbs == ["release"]
