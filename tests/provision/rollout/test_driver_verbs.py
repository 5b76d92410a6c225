"""Which nodes `rollback` and `remove` take out of service, and what they do on them."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from provision.apply.model import Failure, Status
from provision.apply.removal import Part
from provision.apply.runner import RunFinished, RunStatus, TaskDone, TaskOutcome
from provision.declaration.fleet.facts.driver import DriverRun, DriverState
from provision.declaration.fleet.facts.node import Installation
from provision.declaration.spec.model import GpuInterface
from provision.rollout.adapters import Adapters
from provision.rollout.changes.driver_verbs import execute_verb, verb_steps
from provision.rollout.changes.plan import DriverVerb, VerbPlan, plan_verb
from provision.rollout.changes.removing import Removing
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.model import ChangeKind, Phase
from tests.provision.apply.fakes import FakeFleet, FakeNode, context
from tests.provision.rollout.fakes import NEW, OLD, Clock, FakeCluster, pod, record, view
from tests.provision.rollout.fakes import FakeNode as ClusterNode
from tests.provision.samples import make_facts, make_module, make_stack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.apply.runner import Event, RunRequest
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.rollout.changes.plan import AnyVerb
    from provision.rollout.model import NodeView, Record

BACK, REMOVE = DriverVerb.BACK, Removing(parts=frozenset({Part.DRIVER}))
PROGRAM: dict[str, Installation | None] = {"driver": Installation(digest="d4")}
CHANGE = "0123456789ab"


def node_with(loaded: str | None = NEW, *, installed: bool = True, **driver: object) -> NodeFacts:
    """Return a node that runs a driver which grapnel has swapped in, over the older one."""
    state = DriverState(**{"current": CHANGE, "back": OLD, "managed": True, **driver})  # type: ignore[arg-type] # by name
    return make_facts(
        module=make_module(loaded, loaded), driver=state, installed=PROGRAM if installed else {"driver": None}
    )


def plan(verb: AnyVerb, facts: NodeFacts | Failure, seen: NodeView | NodeProblem | None = None) -> VerbPlan:
    return plan_verb(verb, {"n1": facts}, {"n1": make_stack()}, {"n1": seen or view("n1")})


def of_back(state: str = "done") -> DriverRun:
    return DriverRun(state=state, verb="back", change=CHANGE)  # type: ignore[arg-type] # one of the states


@pytest.mark.parametrize(
    ("verb", "facts", "way"),
    [
        pytest.param(BACK, node_with(), (NEW, OLD), id="back to the older driver"),
        pytest.param(BACK, node_with(back=""), (NEW, ""), id="back from a first driver"),
        pytest.param(BACK, node_with(None, back=OLD), ("", OLD), id="back where a failed swap left no module"),
        pytest.param(REMOVE, node_with(), (NEW, ""), id="removal"),
        pytest.param(REMOVE, node_with(managed=False), (NEW, ""), id="removal of the program alone"),
    ],
)
def test_a_node_goes_out_of_service_for_it(verb: AnyVerb, facts: NodeFacts, way: tuple[str, str]) -> None:
    planned = plan(verb, facts)

    (state,) = planned.prepared.states
    assert planned.prepared.rollout == ("n1",)
    assert (state.origin, state.target) == way
    assert state.is_disruptive
    assert planned.settled == {}


@pytest.mark.parametrize("phase", [Phase.SWAP, Phase.ROLLBACK, Phase.FAILED, Phase.RETURNED])
def test_what_a_change_of_interface_left_is_no_driver_change_that_was_undone(phase: Phase) -> None:
    """Its record has the driver that runs: nothing of it says that the node has its former driver again."""
    left = record(
        phase,
        target=NEW,
        origin=NEW,
        origin_change=CHANGE,
        kind=ChangeKind.INTERFACE,
        interface=GpuInterface.DRA,
        is_returning=phase is not Phase.SWAP,
    )

    stack = make_stack(driver={"version": NEW})
    planned = plan_verb(BACK, {"n1": node_with()}, {"n1": stack}, {"n1": view("n1", record=left)})

    (state,) = planned.prepared.states
    assert (state.origin, state.target, planned.targets["n1"]) == (NEW, OLD, OLD)
    assert state.is_disruptive
    assert planned.settled == {}


@pytest.mark.parametrize(
    ("verb", "facts", "seen", "status", "words"),
    [
        pytest.param(BACK, node_with(back=None), None, Status.REFUSED, "nothing to go back to", id="no way back"),
        pytest.param(
            BACK,
            Failure(Status.UNREACHABLE, "no route to host"),
            None,
            Status.UNREACHABLE,
            "no route to host",
            id="a node that does not answer",
        ),
        pytest.param(
            BACK,
            node_with(),
            NodeProblem(name="n1", message="two nodes are named n1", hint="rename one"),
            Status.REFUSED,
            "cannot be: two nodes are named n1 (rename one)",
            id="a node that cannot be drained",
        ),
        pytest.param(
            REMOVE,
            node_with(installed=False, managed=False),
            None,
            Status.UNCHANGED,
            "",
            id="nothing of grapnel's to remove",
        ),
    ],
)
def test_a_node_stays_in_service(
    verb: AnyVerb, facts: NodeFacts | Failure, seen: NodeView | NodeProblem | None, status: Status, words: str
) -> None:
    planned = plan(verb, facts, seen)

    assert planned.prepared.rollout == ()
    result = planned.settled["n1"]
    assert result.status is status
    assert words in (result.failure.message if result.failure else "")


@pytest.mark.parametrize(
    ("verb", "facts", "former", "target", "is_done"),
    [
        pytest.param(
            BACK,
            node_with(OLD, back="525.1", run=of_back()),
            record(Phase.SWAP, target=OLD, origin=NEW),
            OLD,
            True,
            id="killed after the driver went back: not back once more",
        ),
        pytest.param(
            BACK,
            node_with(NEW, run=of_back("running")),
            record(Phase.SWAP, target=OLD, origin=NEW),
            OLD,
            False,
            id="killed while the driver went back",
        ),
        pytest.param(
            BACK,
            node_with(NEW, run=DriverRun(state="done", verb="swap", change=CHANGE)),
            record(Phase.FAILED, target=NEW, origin=OLD),
            OLD,
            False,
            id="after an apply that failed with the new driver",
        ),
        pytest.param(
            BACK,
            node_with(OLD, back="525.1", run=of_back()),
            record(Phase.DONE, target=OLD, origin=NEW),
            "525.1",
            False,
            id="asked for again after it was done: one further back",
        ),
        pytest.param(
            REMOVE,
            node_with(None, installed=False, managed=False, current=None, back=None),
            record(Phase.SWAP, target="", origin=NEW),
            "",
            True,
            id="killed after everything was removed",
        ),
    ],
)
def test_a_command_that_was_cut_short_is_continued(
    verb: AnyVerb, facts: NodeFacts, former: Record, target: str, *, is_done: bool
) -> None:
    planned = plan(verb, facts, view("n1", former))

    (state,) = planned.prepared.states
    assert planned.prepared.rollout == ("n1",)
    assert (state.target, state.is_as_declared, state.is_disruptive) == (target, is_done, not is_done)


@dataclass
class Program:
    """Answers the playbooks of the daemon, and that of the driver program, which changes the cluster's fake driver."""

    fleet: FakeFleet
    cluster: FakeCluster
    is_broken: bool = False
    verbs: list[object] = field(default_factory=list)
    expected: list[Any] = field(default_factory=list)

    def run(self, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        (name,) = request.nodes
        if request.playbook.stem != "driver":
            self.expected += [one for key, one in request.extra_vars.items() if key == "grapnel_expectation"]
            yield from self.fleet.run(request, cancel)
            return
        assert request.extra_vars["grapnel_is_out_of_service"] is True
        found = self.cluster.nodes[name]
        assert found.is_cordoned
        assert not found.pods
        assert self.fleet.nodes[name].verbs[-1] == "release"
        self.verbs.append(request.extra_vars["grapnel_driver_verb"])
        if self.is_broken:
            yield TaskDone(name, "Change the driver", TaskOutcome.FAILED, message="the driver's back ended quarantined")
            yield RunFinished(RunStatus.FAILED)
            return
        yield TaskDone(name, "Change the driver", TaskOutcome.CHANGED)
        yield RunFinished(RunStatus.SUCCESSFUL)


def carry_out(verb: AnyVerb, facts: NodeFacts, *, is_broken: bool = False) -> tuple[Program, list[Any]]:
    cluster = FakeCluster({"n1": ClusterNode(pods=[pod("web-1")])})
    program = Program(FakeFleet({"n1": FakeNode()}), cluster, is_broken)
    stacks = {"n1": make_stack(driver={"version": NEW})}
    planned = plan_verb(verb, {"n1": facts}, stacks, cluster.observe(["n1"]))
    steps = verb_steps(context(program), stacks, planned)  # type: ignore[arg-type] # a runner as well
    adapters = Adapters(cluster=cluster, steps=steps, clock=Clock(), poll_s=0.001)
    seen: list[Any] = []
    (result,) = execute_verb(planned, adapters, seen.append, cancel=threading.Event(), holder="me")
    return program, [result, *seen]


def test_a_rollback_drains_the_node_and_verifies_the_driver_before() -> None:
    program, (result, *_) = carry_out(BACK, node_with())

    assert result.status is Status.RETURNED
    assert (result.upgrade.origin, result.upgrade.target, result.upgrade.is_out) == (NEW, OLD, False)
    assert program.cluster.evicted == ["web-1"]
    assert program.verbs == ["back"]
    assert program.fleet.nodes["n1"].verbs == ["release", "verify", "resume"]
    assert [one["driverVersion"] for one in program.expected] == [OLD]
    assert not program.cluster.nodes["n1"].is_cordoned


@pytest.mark.parametrize(
    ("verb", "facts", "status"),
    [
        pytest.param(REMOVE, node_with(), Status.REMOVED, id="remove"),
        pytest.param(BACK, node_with(back=""), Status.RETURNED, id="back from a first driver"),
    ],
)
def test_without_a_driver_there_is_nothing_to_verify_or_resume(verb: AnyVerb, facts: NodeFacts, status: Status) -> None:
    program, (result, *_) = carry_out(verb, facts)

    assert result.status is status
    assert program.verbs == [verb.value]
    assert program.fleet.nodes["n1"].verbs == ["release"]
    assert not program.cluster.nodes["n1"].is_cordoned


def test_a_removal_ends_the_record_of_the_upgrade() -> None:
    """`grapnel status` said of a node without a driver that it was in service with the declared one."""
    program, _ = carry_out(REMOVE, node_with())
    assert program.cluster.nodes["n1"].record is None

    program, _ = carry_out(BACK, node_with())
    assert program.cluster.nodes["n1"].record is not None


@pytest.mark.parametrize(
    ("parts", "is_kept"), [({Part.DRIVER}, False), ({Part.HOOK}, True)], ids=["the driver", "a part beside it"]
)
def test_a_removal_that_finds_nothing_ends_what_one_before_could_not(parts: set[Part], *, is_kept: bool) -> None:
    former = record(Phase.DONE, target="", origin=NEW)
    cluster = FakeCluster({"n1": ClusterNode(record=former)})
    facts = node_with(None, installed=False, managed=False, current=None, back=None)
    verb = Removing(parts=frozenset(parts))
    planned = plan_verb(verb, {"n1": facts}, {"n1": make_stack()}, cluster.observe(["n1"]))
    program = Program(FakeFleet({"n1": FakeNode()}), cluster)
    steps = verb_steps(context(program), {"n1": make_stack()}, planned)  # type: ignore[arg-type] # a runner as well
    adapters = Adapters(cluster=cluster, steps=steps, clock=Clock(), poll_s=0.001)

    (result,) = execute_verb(planned, adapters, lambda _: None, cancel=threading.Event(), holder="me")

    assert result.status is Status.UNCHANGED
    assert (cluster.nodes["n1"].record is not None) is is_kept


def test_a_rollback_that_fails_leaves_the_node_out_of_service_with_the_reason() -> None:
    program, (result, *_) = carry_out(BACK, node_with(), is_broken=True)

    assert result.status is Status.FAILED
    assert result.failure.message == "the driver's back ended quarantined"
    assert result.upgrade.is_out
    assert program.cluster.nodes["n1"].is_cordoned
