"""Machines that are files in a folder, so that several processes can have them, and tests can hold them up.

    machines/NAME.json   which drivers it had, the present one last; what is staged; what is broken
    hold/NAME.PLAYBOOK   that playbook does not end on that machine while the file is there
    runs                 a line "NAME PLAYBOOK" for each playbook that has ended on a machine

Everything above is what a person runs: inventory, declaration, plans, rollout, node state.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from provision.apply.runner import RunFinished, RunStatus, TaskDone, TaskOutcome, TaskStarted
from provision.planning.node_plan import Action, Disruption, DriverVariables, Item, NodePlan, Role, Roles

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from provision.apply.runner import Event, RunRequest
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec

POLL_S = 0.02


@dataclass
class Machine:
    """One machine. ``drivers`` are versions, ``broken`` playbooks that fail on it, ``is_away`` that nobody reaches it.

    ``pace_s`` is how long a playbook takes, ``exchange`` a command that is part of a driver's exchange.
    """

    drivers: list[str]
    staged: str = ""
    broken: list[str] = field(default_factory=list)
    is_away: bool = False
    pace_s: float = 0.0
    exchange: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Machines:
    """The machines of a folder, as tests see them, and as a runner of playbooks does."""

    folder: Path

    def make(self, name: str, machine: Machine) -> None:
        """Put a machine there, or change one."""
        for part in ("machines", "hold"):
            self.folder.joinpath(part).mkdir(exist_ok=True)
        fresh = self.folder / f".{name}"
        fresh.write_text(json.dumps(asdict(machine)))
        fresh.replace(self._path(name))

    def look(self, name: str) -> Machine:
        """Return how a machine is now."""
        return Machine(**json.loads(self._path(name).read_text()))

    def driver(self, name: str) -> str:
        """Return the driver that a machine runs."""
        return self.look(name).drivers[-1]

    def break_down(self, name: str, *playbooks: str) -> None:
        """Let playbooks fail on a machine from now on, none for all to be well."""
        machine = self.look(name)
        machine.broken = list(playbooks)
        self.make(name, machine)

    def hold(self, name: str, playbook: str) -> None:
        """Keep a playbook from ending on a machine."""
        self._hold(name, playbook).touch()

    def let(self, name: str, playbook: str) -> None:
        """Let it end."""
        self._hold(name, playbook).unlink()

    def runs(self, name: str) -> list[str]:
        """Return the playbooks that have ended on a machine, those that only look left out."""
        lines = self.folder.joinpath("runs").read_text().splitlines() if self.folder.joinpath("runs").exists() else []
        found = [line.split() for line in lines]
        return [playbook for node, playbook in found if node == name and playbook != "facts"]

    def run(self, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        """Run a playbook on machines, one after the other."""
        playbook, is_bad = request.playbook.stem, False
        for name in request.nodes:
            yield TaskStarted(name, playbook, "")
            if self._waits(name, playbook, cancel):
                yield RunFinished(RunStatus.CANCELED, message="canceled")
                return
            done = self._do(name, playbook, request.extra_vars)
            is_bad |= done.outcome in (TaskOutcome.FAILED, TaskOutcome.UNREACHABLE)
            with self.folder.joinpath("runs").open("a") as runs:
                runs.write(f"{name} {playbook}\n")
            yield done
        yield RunFinished(RunStatus.FAILED if is_bad else RunStatus.SUCCESSFUL)

    def _waits(self, name: str, playbook: str, cancel: threading.Event) -> bool:
        """Wait as long as the machine takes; return whether that was cut short."""
        if playbook != "facts" and cancel.wait(self.look(name).pace_s):
            return True
        while self._hold(name, playbook).exists():
            if cancel.wait(POLL_S):
                return True
        return cancel.is_set()

    def _do(self, name: str, playbook: str, variables: Mapping[str, object]) -> TaskDone:
        machine = self.look(name)
        if machine.is_away:
            return TaskDone(name, playbook, TaskOutcome.UNREACHABLE, message="no route to host")
        if playbook in machine.broken:
            return TaskDone(name, playbook, TaskOutcome.FAILED, message=f"{playbook} is broken")
        if playbook == "stage":
            machine.staged = planned_version(variables)
        elif playbook == "apply":
            machine.drivers.append(planned_version(variables))
            if machine.exchange:
                subprocess.run(machine.exchange, check=True)
        elif playbook == "driver":
            machine.drivers.pop()
        self.make(name, machine)
        outcome = TaskOutcome.OK if playbook == "facts" else TaskOutcome.CHANGED
        values = {"facts": _facts(name, machine), "daemon": json.dumps(_answer(playbook)).encode()}
        return TaskDone(name, playbook, outcome, values=values)

    def _path(self, name: str) -> Path:
        return self.folder / "machines" / f"{name}.json"

    def _hold(self, name: str, playbook: str) -> Path:
        return self.folder / "hold" / f"{name}.{playbook}"


def planned_version(variables: Mapping[str, object]) -> str:
    """Return the driver that a plan is about."""
    plan = variables["grapnel_plan"]
    assert isinstance(plan, dict)
    version = plan["roles"]["driver"]["driver_version"]
    assert isinstance(version, str)
    return version


def planner(stacks: Mapping[str, StackSpec]) -> Callable[[str, NodeFacts, threading.Event], NodePlan]:
    """Return what plans the driver alone: it is staged, and then exchanged on a node that is out of service."""

    def plan(node: str, facts: NodeFacts, _cancel: threading.Event) -> NodePlan:
        wanted, has = stacks[node].driver.version, facts.module.version
        if wanted is None or wanted == has:
            return NodePlan(node=node)
        is_staged = any(each.version == wanted for each in facts.driver.staged)
        driver = DriverVariables(
            driver_version=wanted, driver_change_id=_change(wanted), driver_stage=not is_staged, driver_swap=is_staged
        )
        swap = Item(
            role=Role.DRIVER,
            action=Action.UPGRADE,
            target="driver",
            from_=has,
            to=wanted,
            reason="declared",
            disruption=Disruption.DRAIN,
            deferred=not is_staged,
        )
        return NodePlan(node=node, items=(swap,), roles=Roles(driver=driver))

    return plan


def _facts(name: str, machine: Machine) -> bytes:
    *before, version = machine.drivers
    staged = [{"id": _change(machine.staged), "version": machine.staged, "complete": True}] if machine.staged else []
    driver = {"staged": staged, "current": _change(version), "back": before[-1] if before else None, "managed": True}
    facts = {
        "schema": "grapnel.dev/facts/v1alpha1",
        "node": {
            "hostname": name,
            "machine_id": f"id-of-{name}",
            "boot_id": "b",
            "kernel": "6.12",
            "architecture": "x86_64",
            "python": "3.13",
            "os": {"id": "debian"},
        },
        "package_manager": {"name": "apt"},
        "packages": {},
        "device_holders": [],
        "driver": driver,
        "module": {"loaded": True, "version": version, "on_disk": version},
    }
    return json.dumps(facts).encode()


def _answer(playbook: str) -> dict[str, object]:
    return {"released": True, "holders": []} if playbook == "release" else {"ok": True, "checks": []}


def _change(version: str) -> str:
    return f"change-{version}"
