"""Machines with boots, behind the real steps of `grapnel reboot`: what playbooks do to them really changes them."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from provision.apply.runner import RunFinished, RunStatus, TaskDone, TaskOutcome
from provision.declaration.fleet.facts.driver import PendingReboot
from provision.rollout.adapters import Adapters
from provision.rollout.changes.driver_verbs import execute_verb
from provision.rollout.changes.reboot_plan import SINCE, RebootPlan, RebootRequest, plan_reboots
from provision.rollout.changes.reboot_steps import reboot_steps
from tests.provision.apply.fakes import context
from tests.provision.rollout.fakes import CALM, OLD, Clock, FakeCluster, FakeNode, pod
from tests.provision.samples import make_facts, make_module, make_stack
from tests.provision.samples import replace as changed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from provision.apply.model import NodeResult
    from provision.apply.runner import Event, RunRequest
    from provision.declaration.fleet.facts.node import NodeFacts


def boot_of(node: str, number: int) -> str:
    """Return the name of the nth boot of a node."""
    return f"{int(node[1:]):08x}-0000-4000-8000-{number:012x}"


@dataclass
class Machine:
    """A machine that counts its boots. ``is_lost``: it does not come back from a reboot."""

    boots: int = 1
    is_released: bool = False
    is_needed: bool = False
    is_lost: bool = False
    breaks: str = ""  # the playbook that fails on it
    asked: list[str] = field(default_factory=list)


@dataclass
class Machines:
    """Answers the playbooks; ``effect`` is called before and after each change, and may end the process there."""

    cluster: FakeCluster
    machines: dict[str, Machine]
    effect: Callable[[str], None] = CALM
    clock: Clock = field(default_factory=Clock)

    @classmethod
    def of(cls, *names: str) -> Machines:
        nodes = {name: FakeNode(pods=[pod(f"{name}-a")], driver=OLD) for name in names}
        return cls(FakeCluster(nodes), {name: Machine() for name in names})

    def facts(self, name: str) -> NodeFacts:
        found = make_facts(module=make_module(OLD, OLD))
        node = changed(found.node, hostname=name, boot_id=boot_of(name, self.machines[name].boots))
        pending = PendingReboot(path="/run/reboot-required") if self.machines[name].is_needed else None
        return changed(found, node=node, pending_reboot=pending)

    def run(self, request: RunRequest, _cancel: threading.Event) -> Iterator[Event]:
        if request.playbook.stem == "facts":
            for name in request.nodes:
                told = msgspec.json.encode(self.facts(name))
                yield TaskDone(name, "Gather facts", TaskOutcome.OK, values={"facts": told})
            yield RunFinished(RunStatus.SUCCESSFUL)
            return
        (name,), verb = request.nodes, request.playbook.stem
        machine = self.machines[name]
        machine.asked.append(verb)
        is_lost = machine.is_lost and verb == "reboot"
        if is_lost or machine.breaks == verb:
            broken = TaskDone(name, verb, TaskOutcome.FAILED, message=f"{verb} is broken")
            yield TaskDone(name, verb, TaskOutcome.UNREACHABLE, message="no route to host") if is_lost else broken
            yield RunFinished(RunStatus.FAILED)
            return
        answer = {"release": self._release, "reboot": self._reboot, "verify": self._verify, "resume": self._resume}
        yield from answer[verb](name, machine, request)
        yield RunFinished(RunStatus.SUCCESSFUL)

    def _reboot(self, name: str, machine: Machine, request: RunRequest) -> Iterator[Event]:
        assert request.extra_vars["grapnel_boot_id"] == (self.cluster.nodes[name].record or 0).boot  # type: ignore[union-attr] # it has one
        assert self.cluster.nodes[name].is_cordoned
        assert machine.is_released
        assert not self.cluster.nodes[name].pods
        if boot_of(name, machine.boots) == request.extra_vars["grapnel_boot_id"]:
            self.effect(f"reboot {name}")
            machine.boots += 1
            machine.is_needed = False
            self.effect(f"rebooted {name}")
        yield TaskDone(name, "Reboot", TaskOutcome.CHANGED)

    def _release(self, name: str, machine: Machine, _request: RunRequest) -> Iterator[Event]:
        self.effect(f"release {name}")
        machine.is_released = True
        yield self._daemon(name, {"released": True, "holders": []})

    def _verify(self, name: str, machine: Machine, request: RunRequest) -> Iterator[Event]:
        assert request.extra_vars["grapnel_expectation"]["driverVersion"] == OLD  # type: ignore[index] # a dict
        assert machine.boots > 1, "verified before it was rebooted"
        self.effect(f"verify {name}")
        yield self._daemon(name, {"ok": True})

    def _resume(self, name: str, machine: Machine, _request: RunRequest) -> Iterator[Event]:
        assert "verify" in machine.asked
        self.effect(f"resume {name}")
        machine.is_released = False
        yield self._daemon(name, {})

    @staticmethod
    def _daemon(name: str, answer: dict[str, Any]) -> Event:
        return TaskDone(name, "daemon", TaskOutcome.OK, values={"daemon": json.dumps(answer).encode()})

    def request(self, **more: Any) -> RebootRequest:
        now = self.clock.now
        return RebootRequest(**{"now": now, "since": now - SINCE, **more})

    def plan(self, *names: str, rollout: dict[str, object] | None = None, **more: Any) -> RebootPlan:
        asked = names or tuple(self.machines)
        stacks = {name: make_stack(driver={"version": OLD}, rollout=rollout or {}) for name in asked}
        answers = {name: self.facts(name) for name in asked}
        return plan_reboots(answers, stacks, self.cluster.observe(asked), self.request(**more))

    def reboot(self, *names: str, rollout: dict[str, object] | None = None, **more: Any) -> dict[str, NodeResult]:
        """Run one process of `grapnel reboot`."""
        planned = self.plan(*names, rollout=rollout, **more)
        stacks = {state.name: make_stack(driver={"version": OLD}) for state in planned.prepared.states}
        steps = reboot_steps(context(self), stacks, planned)  # type: ignore[arg-type] # a runner too
        adapters = Adapters(cluster=self.cluster, steps=steps, clock=self.clock, poll_s=0.0005)
        self.clock.now += timedelta(seconds=1)
        quiet: Callable[[object], None] = lambda _progress: None  # noqa: E731 - nobody listens
        results = execute_verb(planned, adapters, quiet, cancel=threading.Event(), holder="me")
        return {result.node: result for result in results}

    def settled(self, **more: Any) -> dict[str, NodeResult]:
        return dict(self.plan(**more).settled)
