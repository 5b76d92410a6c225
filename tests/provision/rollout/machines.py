"""Nodes that go back to their former driver, in memory."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from provision.apply.model import Failure, NodeResult, Status
from provision.apply.runner import RunFinished, RunStatus, TaskDone, TaskOutcome
from provision.declaration.fleet.facts.driver import DriverRun, DriverState
from provision.rollout.adapters import Adapters
from provision.rollout.changes.driver_verbs import execute_verb, verb_steps
from provision.rollout.changes.plan import DriverVerb, Extent, VerbPlan, plan_verb
from provision.rollout.model import Phase
from tests.provision.apply.fakes import FakeFleet, FakeNode, context
from tests.provision.rollout.fakes import NEW, OLD, Clock, FakeCluster, record
from tests.provision.rollout.fakes import FakeNode as ClusterNode
from tests.provision.samples import make_facts, make_module, make_stack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.apply.runner import Event, RunRequest
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.rollout.model import Record

OLDER = "525.147.05"
BACK = DriverVerb.BACK
FORWARD, BEFORE = "0123456789ab", "ba9876543210"  # driver changes
CHANGED = record(Phase.DONE, origin_change=BEFORE)
RETURNED = record(Phase.DONE, target=OLD, origin=NEW)


@dataclass
class Machines:
    """Nodes whose driver program goes back one change, and whose record is in the cluster."""

    cluster: FakeCluster
    fleet: FakeFleet
    loaded: dict[str, str]
    returned: list[str] = field(default_factory=list)
    dies_at: str = ""
    fails: tuple[str, ...] = ()  # whose driver program fails
    cancel: threading.Event = field(default_factory=threading.Event)

    def run(self, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        (name,) = request.nodes
        if request.playbook.stem != "driver":
            yield from self.fleet.run(request, cancel)
            return
        if name == self.dies_at:
            self.cancel.set()
            yield RunFinished(RunStatus.CANCELED)
            return
        assert request.extra_vars["grapnel_driver_verb"] == "back"
        if name in self.fails:
            yield TaskDone(name, "Change the driver", TaskOutcome.FAILED, message="the module does not load")
            yield RunFinished(RunStatus.FAILED)
            return
        assert self.loaded[name] == NEW, "it went further back than to the driver before"
        self.loaded[name] = OLD
        self.returned.append(name)
        yield TaskDone(name, "Change the driver", TaskOutcome.CHANGED)
        yield RunFinished(RunStatus.SUCCESSFUL)

    def facts(self, name: str) -> NodeFacts | Failure:
        loaded = self.loaded[name]
        if not loaded:
            return Failure(Status.UNREACHABLE, "no route to host")
        run = DriverRun(state="done", verb="back" if name in self.returned else "swap", change=FORWARD)
        is_new = loaded == NEW
        state = DriverState(current=FORWARD if is_new else BEFORE, back=OLD if is_new else OLDER, run=run, managed=True)
        return make_facts(module=make_module(loaded, loaded), driver=state)


def machines(**records: Record | None) -> Machines:
    """Return nodes that run what their records say."""
    cluster = FakeCluster(
        {
            name: ClusterNode(record=each, is_cordoned=each is not None and not each.phase.is_in_service)
            for name, each in records.items()
        }
    )
    loaded = {name: each.target if each is not None else OLD for name, each in records.items()}
    return Machines(cluster, FakeFleet({name: FakeNode() for name in records}), loaded)


def rack_of(name: str) -> tuple[str, ...]:
    """Return the groups of a node: ``a1`` is in rack-a, a node of no rack begins with ``n``."""
    return () if name.startswith("n") else (f"rack-{name[0]}",)


def plan(found: Machines, *names: str, named: bool = False, **rollout: object) -> VerbPlan:
    """Plan to take nodes back: ``names``, which are ``named`` as well, or all."""
    asked = names or tuple(found.loaded)
    stacks = {name: make_stack(driver={"version": NEW}, rollout=rollout) for name in asked}
    answers = {name: found.facts(name) for name in asked}
    seen = found.cluster.observe(list(found.loaded))
    extent = Extent(
        undoes_upgrade=not (named or names),
        groups={name: rack_of(name) for name in found.loaded},
        in_waves=True,
        unnamed={name: view for name, view in seen.items() if name not in asked},
    )
    return plan_verb(BACK, answers, stacks, {name: seen[name] for name in asked}, extent)


def go_back(found: Machines, *names: str, **options: object) -> dict[str, str]:
    """Take nodes back; return the status of each."""
    return {result.node: result.status.value for result in results_of_going_back(found, *names, **options)}


def results_of_going_back(found: Machines, *names: str, **options: object) -> tuple[NodeResult, ...]:
    """Take nodes back; return what became of each."""
    planned = plan(found, *names, **options)  # type: ignore[arg-type]  # of the rollout, by name
    found.cancel = threading.Event()
    stacks = {name: make_stack(driver={"version": NEW}) for name in found.loaded}
    steps = verb_steps(context(found), stacks, planned)  # type: ignore[arg-type] # a runner as well
    adapters = Adapters(cluster=found.cluster, steps=steps, clock=Clock(), poll_s=0.001)
    return execute_verb(planned, adapters, lambda _seen: None, cancel=found.cancel, holder="me")
