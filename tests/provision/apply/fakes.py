"""A fleet in memory: nodes with packages, a planner that wants some, a runner that installs them."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from provision.apply.context import ApplyContext
from provision.apply.declarations import Declarations
from provision.apply.playbooks import Playbooks
from provision.apply.runner import Event, RunFinished, RunRequest, RunStatus, TaskDone, TaskOutcome, TaskStarted
from provision.cli.session.scope import Scope
from provision.declaration.fleet.facts.node import DeviceHolder, NodeFacts, parse_facts
from provision.planning.node_plan import (
    Action,
    Disruption,
    DriverVariables,
    Item,
    NodePlan,
    Problem,
    Role,
    Roles,
    RuntimeVariables,
)
from tests.provision.rollout.fakes import Clock, FakeCluster
from tests.provision.rollout.fakes import FakeNode as ClusterNode
from tests.provision.samples import make_stack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from provision.apply.context import Planner
    from provision.rollout.interface.progress import RolloutProgress

COLLECTION = Path("/collection")
WANTED = ("driver", "runtime")


def raw_facts(node: str, packages: list[str], holders: list[dict[str, object]]) -> dict[str, object]:
    return {
        "schema": "grapnel.dev/facts/v1alpha1",
        "node": {
            "hostname": node,
            "machine_id": "m",
            "boot_id": "b",
            "kernel": "6.12",
            "architecture": "x86_64",
            "python": "3.13",
            "os": {"id": "debian"},
        },
        "package_manager": {"name": "apt"},
        "packages": {name: {"version": "1", "source": name} for name in packages},
        "device_holders": holders,
    }


def facts_of(node: str, *packages: str, holders: tuple[DeviceHolder, ...] = ()) -> NodeFacts:
    raw = raw_facts(node, list(packages), [{"pid": one.pid, "command": one.command} for one in holders])
    return parse_facts(raw)


def item(target: str, **more: object) -> Item:
    given = {"role": Role.DRIVER, "action": Action.INSTALL, "to": "1", "reason": "declared", **more}
    return Item(target=target, **given)  # type: ignore[arg-type]  # fields of the item, by name


def plan_packages(node: str, facts: NodeFacts) -> NodePlan:
    """One package per pass: what comes after the first is foreseen only, as with a runtime that is not there."""
    missing = [name for name in WANTED if name not in facts.packages]
    items = tuple(item(name, deferred=index > 0) for index, name in enumerate(missing))
    problems = (Problem(code="cursed", message="the node is cursed", hint=""),) if "curse" in facts.packages else ()
    return NodePlan(node=node, items=items, problems=problems)


def plan_drain(node: str, facts: NodeFacts) -> NodePlan:
    if "driver" in facts.packages:
        return NodePlan(node=node)
    return NodePlan(node=node, items=(item("driver", disruption=Disruption.DRAIN),))


def plan_staged(node: str, facts: NodeFacts) -> NodePlan:
    """A driver that is staged before the node is taken out of service for it."""
    if "driver" in facts.packages:
        return NodePlan(node=node)
    is_staged = bool(facts.driver.staged)
    swap = item("driver", disruption=Disruption.DRAIN, deferred=not is_staged)
    variables = DriverVariables(
        driver_version="550.163.01", driver_change_id="c4a9e", driver_stage=not is_staged, driver_swap=is_staged
    )
    return NodePlan(node=node, items=(swap,), roles=Roles(driver=variables))


def plan_engine(node: str, facts: NodeFacts) -> NodePlan:
    """An engine whose packages are staged before the node is taken out of service for them."""
    if "containerd" in facts.packages:
        return NodePlan(node=node)
    is_staged = facts.engine_staged is not None
    change = item("containerd", role=Role.RUNTIME, disruption=Disruption.DRAIN, deferred=not is_staged)
    variables = RuntimeVariables(
        runtime_engine="containerd",
        runtime_service="containerd.service",
        runtime_stage=None if is_staged else {"containerd": "2.4.2"},
    )
    return NodePlan(node=node, items=(change,), roles=Roles(runtime=variables))


@dataclass
class FakeNode:
    """A node; ``broken`` fails that package or that verb of the daemon, ``deaf`` accepts and forgets packages.

    On ``release`` the daemon tells the ``holders`` and they end.
    """

    packages: list[str] = field(default_factory=list)
    reachable: bool = True
    broken: str = ""
    deaf: bool = False
    verbs: list[str] = field(default_factory=list)
    answer: dict[str, object] | None = None  # of the daemon, whatever it is asked
    holders: list[dict[str, object]] = field(default_factory=list)
    staged: str = ""  # the change that is ready on the node
    staged_engine: str = ""  # the version of containerd that lies ready on it
    half_done: str = ""  # the one that was cut short on it


@dataclass
class FakeFleet:
    """Answers the two playbooks as Ansible would, and writes down who was asked what."""

    nodes: dict[str, FakeNode]
    runs: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    on_install: Callable[[str, threading.Event], None] = lambda _node, _cancel: None
    broken_run: RunStatus | None = None
    requests: list[RunRequest] = field(default_factory=list)

    def run(self, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        self.runs.append((request.playbook.stem, request.nodes))
        self.requests.append(request)
        if cancel.is_set():
            yield RunFinished(RunStatus.CANCELED, message="canceled")
            return
        if self.broken_run is not None:
            yield RunFinished(self.broken_run, message="no such playbook")
            return
        work = self._works().get(request.playbook.stem, self._ask_daemon)
        bad = False
        for name in request.nodes:
            for event in work(name, request, cancel) if name in self.nodes else ():
                bad |= isinstance(event, TaskDone) and event.outcome in (TaskOutcome.FAILED, TaskOutcome.UNREACHABLE)
                yield event
        if cancel.is_set():
            yield RunFinished(RunStatus.CANCELED, message="canceled")
        else:
            yield RunFinished(RunStatus.FAILED if bad else RunStatus.SUCCESSFUL)

    def _works(self) -> dict[str, Callable[[str, RunRequest, threading.Event], Iterator[Event]]]:
        return {"facts": self._look, "apply": self._install, "stage": self._prepare}

    def applied(self) -> list[str]:
        return [node for playbook, nodes in self.runs if playbook == "apply" for node in nodes]

    def _look(self, name: str, _request: RunRequest, _cancel: threading.Event) -> Iterator[Event]:
        node = self.nodes[name]
        yield TaskStarted(name, "gather facts")
        if not node.reachable:
            yield TaskDone(name, "gather facts", TaskOutcome.UNREACHABLE, message="no route to host")
            return
        facts = raw_facts(name, node.packages, node.holders)
        if node.staged:
            cost = {"download_s": 3, "build_s": 60, "bytes": 135_000_000, "cpu_s": 566.4}
            facts["driver"] = {"staged": [{"id": node.staged, "version": "550.163.01", "complete": True, "cost": cost}]}
        if node.staged_engine:
            ready = {"packages": {"containerd": node.staged_engine}, "complete": True, "bytes": 61_000_000}
            facts["engine_staged"] = ready
        if node.half_done:
            run = {"state": "running", "verb": "swap", "change": node.half_done}
            facts["driver"] = {**facts.get("driver", {}), "run": run}
        yield TaskDone(name, "gather facts", TaskOutcome.OK, values={"facts": json.dumps(facts).encode()})

    def _prepare(self, name: str, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        node = self.nodes[name]
        yield TaskStarted(name, "stage", "driver")
        if node.broken == "stage":
            yield TaskDone(name, "stage", TaskOutcome.FAILED, "driver", "no space left on /var")
            return
        plan = request.extra_vars["grapnel_plan"]
        assert isinstance(plan, dict)
        if "driver" in plan["roles"]:
            node.staged = plan["roles"]["driver"]["driver_change_id"]
        if "runtime" in plan["roles"]:
            node.staged_engine = plan["roles"]["runtime"]["runtime_stage"]["containerd"]
        yield TaskDone(name, "stage", TaskOutcome.CHANGED, "driver")
        yield from self._look(name, request, cancel)

    def _install(self, name: str, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        node = self.nodes[name]
        plan = request.extra_vars["grapnel_plan"]
        assert isinstance(plan, dict)
        for target in [one["target"] for one in plan["items"] if not one["deferred"]]:
            yield TaskStarted(name, f"install {target}", "driver")
            self.on_install(name, cancel)
            if cancel.is_set():
                return
            if node.broken == target:
                message = f"cannot install {target}"
                yield TaskDone(name, f"install {target}", TaskOutcome.FAILED, "driver", message, ("E: broken",))
                return
            if not node.deaf and not request.check:
                node.packages.append(target)
            yield TaskDone(name, f"install {target}", TaskOutcome.CHANGED, "driver")
        yield TaskDone(name, "Change the driver", TaskOutcome.CHANGED, "driver")
        if "grapnel_expectation" in request.extra_vars:
            node.verbs.append("verified")
            answer = {"ok": node.broken != "verify", "checks": []}
            yield TaskDone(name, "Verify the driver", TaskOutcome.OK, values={"daemon": json.dumps(answer).encode()})
        if not request.check:
            yield from self._look(name, request, cancel)

    def _ask_daemon(self, name: str, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        node, verb = self.nodes[name], request.playbook.stem
        node.verbs.append(verb)
        yield TaskStarted(name, verb, "daemon")
        self.on_install(name, cancel)
        if cancel.is_set():
            return
        if node.broken == verb:
            yield TaskDone(name, verb, TaskOutcome.FAILED, message="3 of 4 GPUs answer")
            return
        answer: dict[str, object] = {"released": True, "holders": node.holders}
        if verb == "release":
            node.holders = []
        if verb == "driver":  # it is told to go back
            node.half_done = ""
        yield TaskDone(name, verb, TaskOutcome.OK, values={"daemon": json.dumps(node.answer or answer).encode()})


@dataclass
class Watcher:
    """Collects progress, and the thread that reported it."""

    seen: list[RolloutProgress] = field(default_factory=list)
    threads: set[str] = field(default_factory=set)

    def __call__(self, progress: RolloutProgress) -> None:
        self.seen.append(progress)
        self.threads.add(threading.current_thread().name)


def pure(plan: Callable[[str, NodeFacts], NodePlan]) -> Planner:
    """Return a planner that is done at once, so that nobody can cancel it."""
    return lambda node, facts, _cancel: plan(node, facts)


def context(
    fleet: FakeFleet,
    plan: Callable[[str, NodeFacts], NodePlan] = plan_packages,
    *,
    check: bool = False,
) -> ApplyContext:
    playbooks, declarations = Playbooks(collection=COLLECTION, check=check), Declarations({})
    return ApplyContext(runner=fleet, plan=pure(plan), playbooks=playbooks, declarations=declarations)


def scope_of(cluster: FakeCluster, **sections: dict[str, object]) -> Scope:
    """Return the scope of a command about every node of a cluster; all have the same declaration."""
    stacks = dict.fromkeys(cluster.nodes, make_stack(**sections))
    return Scope(stacks=stacks, cluster=cluster, clock=Clock(), poll_s=0.001)


def cluster_of(fleet: FakeFleet) -> FakeCluster:
    """Return a cluster that has every node of the fleet."""
    return FakeCluster({name: ClusterNode() for name in fleet.nodes}, classes=["nvidia"])
