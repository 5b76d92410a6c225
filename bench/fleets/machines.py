"""Answers playbooks as machines would, at once: what is measured is the controller's own."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.fleets.objects import NEW, OLD, is_faulty
from provision.apply.runner import NodeStats, RunFinished, RunStatus, TaskDone, TaskOutcome, TaskStarted

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping

    from provision.apply.runner import Event, RunRequest


@dataclass
class Machines:
    """Machines in memory; ``looked`` is called with each whose facts are asked for."""

    looked: Callable[[str], None] = lambda _node: None
    drivers: dict[str, str] = field(default_factory=dict)

    def run(self, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        """Run a playbook on its nodes."""
        del cancel
        is_good = True
        for node in request.nodes:
            for event in self.answer(request.playbook.stem, node, request.extra_vars):
                if isinstance(event, RunFinished):
                    is_good = is_good and event.status is RunStatus.SUCCESSFUL
                else:
                    yield event
        yield RunFinished(RunStatus.SUCCESSFUL if is_good else RunStatus.FAILED)

    def answer(self, playbook: str, node: str, variables: Mapping[str, object]) -> Iterator[Event]:
        """Run a playbook on one node."""
        if playbook == "facts":
            self.looked(node)
        yield TaskStarted(node, playbook)
        plan = variables.get("grapnel_plan")
        if playbook == "apply" and isinstance(plan, dict):
            target = plan["items"][0]["target"]
            if target == NEW and is_faulty(node):
                yield TaskDone(node, playbook, TaskOutcome.FAILED, message="it is broken")
                yield RunFinished(RunStatus.FAILED, {node: NodeStats(failed=1)})
                return
            self.drivers[node] = target
        values = {"facts": self.facts(node), "daemon": b'{"released":true,"holders":[],"ok":true,"checks":[]}'}
        yield TaskDone(node, playbook, TaskOutcome.OK, values=values)
        yield RunFinished(RunStatus.SUCCESSFUL)

    def facts(self, node: str) -> bytes:
        """Return the facts of a bare machine."""
        machine = {"hostname": node, "machine_id": "m", "boot_id": "b", "kernel": "6.12", "architecture": "x86_64"}
        more = {"python": "3.13", "os": {"id": "debian"}}
        packages = {"driver": {"version": self.drivers.get(node, OLD), "source": "driver"}}
        found = {"schema": "grapnel.dev/facts/v1alpha1", "node": machine | more, "packages": packages}
        return json.dumps(found | {"package_manager": {"name": "apt"}, "device_holders": []}).encode()
