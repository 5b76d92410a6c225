"""Nodes in memory that build kernel modules, take those of others, and give theirs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision.apply.context import ApplyContext
from provision.apply.declarations import Declarations
from provision.apply.playbooks import Playbooks
from provision.apply.runner import Event, TaskDone, TaskOutcome, TaskStarted
from provision.planning.driver_change import DriverChange, PackageVersion, Signing, change_id
from provision.planning.node_plan import Disruption, DriverVariables, FileContent, NodePlan, Roles
from provision.planning.supply.builds.shelf import Shelf
from tests.provision.apply.fakes import COLLECTION, FakeFleet, FakeNode, item, pure, raw_facts
from tests.provision.builds.samples import KERNEL, write_archive
from tests.provision.samples import make_stack

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from provision.apply.runner import RunRequest
    from provision.declaration.fleet.facts.node import NodeFacts

VERSION = "550.163.01"
SOURCE = FileContent("/etc/apt/sources.list.d/nvidia.list", "deb …\n")


def modules_for(kernel: str) -> dict[str, bytes]:
    return {
        "./dkms_binaries_only/PACKAGE_NAME": b"nvidia-current\n",
        "./dkms_binaries_only/PACKAGE_VERSION": f"{VERSION}\n".encode(),
        f"./dkms_main_tree/{kernel}/x86_64/module/nvidia-current.ko": f"for {kernel}".encode(),
    }


def evil_for(kernel: str) -> dict[str, bytes]:
    """What looks like the modules of a kernel, and does something else."""
    return {name: data + b", evil" if name.endswith(".ko") else data for name, data in modules_for(kernel).items()}


@dataclass
class Machine(FakeNode):
    """A node of the workshop; ``broken`` may also be ``give``, whose archive is not handed out.

    ``gives`` replaces the content of its archive, ``built`` are the kernels that it compiled for, ``handed`` what it
    was given, ``knows_source`` whether packages can be found.
    """

    kernels: tuple[str, ...] = (KERNEL,)
    gives: Mapping[str, bytes] | None = None
    built: list[str] = field(default_factory=list)
    handed: dict[str, str] = field(default_factory=dict)
    knows_source: bool = True
    secure_boot: bool = False
    modules: dict[str, str] = field(default_factory=dict)  # of the driver that runs, by kernel
    machine: str = ""  # its id, its name where that is empty


@dataclass
class Workshop(FakeFleet):
    """A fleet of machines, and the requests that it got."""

    on_build: Callable[[str], None] = lambda _node: None

    def machine(self, name: str) -> Machine:
        node = self.nodes[name]
        assert isinstance(node, Machine)
        return node

    def built(self) -> dict[str, list[str]]:
        """Return who compiled for which kernels."""
        return {name: self.machine(name).built for name in self.nodes if self.machine(name).built}

    def _works(self) -> dict[str, Callable[[str, RunRequest, threading.Event], Iterator[Event]]]:
        return {**super()._works(), "built_module": self._give, "apply": self._converge}

    def _look(self, name: str, _request: RunRequest, _cancel: threading.Event) -> Iterator[Event]:
        node = self.machine(name)
        yield TaskStarted(name, "gather facts")
        if not node.reachable:
            yield TaskDone(name, "gather facts", TaskOutcome.UNREACHABLE, message="no route to host")
            return
        facts = raw_facts(name, node.packages, node.holders)
        facts["node"] |= {"machine_id": node.machine or name}  # type: ignore[operator] # it is a dict
        facts["secure_boot"] = {"enabled": node.secure_boot}
        facts["kernels"] = [
            {"release": kernel, "running": True, "modules": self._module(node, kernel)} for kernel in node.kernels
        ]
        facts["files"] = {SOURCE.path: _FILE if node.knows_source else None}
        cost = {"build_s": 60 if node.built else 0, "bytes": 135_000_000, "cpu_s": 566.4 if node.built else 0}
        staged = [{"id": node.staged, "version": VERSION, "complete": True, "cost": cost}] if node.staged else []
        facts["driver"] = {"staged": staged, "current": node.staged if node.modules else None}
        yield TaskDone(name, "gather facts", TaskOutcome.OK, values={"facts": json.dumps(facts).encode()})

    @staticmethod
    def _module(node: Machine, kernel: str) -> list[dict[str, str]]:
        version = node.modules.get(kernel)
        return [{"version": version, "flavour": "proprietary"}] if version else []

    def _prepare(self, name: str, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        node = self.machine(name)
        yield TaskStarted(name, "stage", "driver")
        if not node.reachable:
            yield TaskDone(name, "stage", TaskOutcome.UNREACHABLE, "driver", "no route to host")
            return
        driver: Any = request.extra_vars
        if driver.get("driver_change") is None:
            node.knows_source = True
        elif not self._stage_change(name, driver):
            yield TaskDone(name, "stage", TaskOutcome.FAILED, "driver", "nv.c:12: error: too few arguments")
            return
        if cancel.is_set():
            return
        yield TaskDone(name, "stage", TaskOutcome.CHANGED, "driver")
        yield from self._look(name, request, cancel)

    def _stage_change(self, name: str, driver: Mapping[str, Any]) -> bool:
        node = self.machine(name)
        node.handed = {one["place"]: Path(one["source"]).name for one in driver.get("grapnel_handover", [])}
        missing = [kernel for kernel in node.kernels if f"modules/{kernel}.tar.gz" not in node.handed]
        if missing:
            self.on_build(name)
            if node.broken == "stage":
                return False
        node.built += missing
        node.staged = driver["driver_change_id"]
        return True

    def _converge(self, name: str, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        yield TaskStarted(name, "swap", "driver")
        driver: Any = request.extra_vars
        if driver.get("driver_stage") and not self._stage_change(name, driver):
            yield TaskDone(name, "stage", TaskOutcome.FAILED, "driver", "nv.c:12: error: too few arguments")
            return
        self.nodes[name].packages.append("driver")
        yield TaskDone(name, "swap", TaskOutcome.CHANGED, "driver")
        yield from self._look(name, request, cancel)

    def _give(self, name: str, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        yield TaskStarted(name, "Get the built modules")
        wanted: Any = request.extra_vars["grapnel_built"]
        node = self.machine(name)
        if node.broken == "give" or not node.staged:
            yield TaskDone(name, "Get the built modules", TaskOutcome.FAILED, message="this node has no modules")
            return
        if cancel.is_set():
            return
        given = node.gives
        write_archive(Path(wanted["destination"]), modules_for(wanted["kernel"]) if given is None else given)
        yield TaskDone(name, "Get the built modules", TaskOutcome.OK)


_FILE = {"mode": "0644", "uid": 0, "gid": 0, "sha256": "a" * 64}


def change_of(kernels: tuple[str, ...], *, is_signed: bool = False) -> DriverChange:
    return DriverChange(
        version=VERSION,
        flavour="proprietary",
        manager="apt",
        packages=(PackageVersion("nvidia-kernel-dkms", f"{VERSION}-2"),),
        kernels=kernels,
        dkms="nvidia-current",
        sign=Signing(key="/etc/key", certificate="/etc/key.der") if is_signed else None,
    )


def planner(*, drains: bool = True, is_signed: bool = False) -> Callable[[str, NodeFacts], NodePlan]:
    """Return a planner for a driver with a module for every kernel of a node."""

    def plan(node: str, facts: NodeFacts) -> NodePlan:
        if "driver" in facts.packages:
            return NodePlan(node=node)
        disruption = Disruption.DRAIN if drains else Disruption.NONE
        if facts.files[SOURCE.path] is None:
            variables = DriverVariables(driver_version=VERSION, driver_sources=(SOURCE,))
            later = item("driver", disruption=disruption, deferred=True)
            return NodePlan(node=node, items=(item(SOURCE.path), later), roles=Roles(driver=variables))
        change = change_of(tuple(kernel.release for kernel in facts.kernels), is_signed=is_signed)
        is_staged = change_id(change) in {one.id for one in facts.driver.staged}
        variables = DriverVariables(
            driver_version=VERSION,
            driver_change=change,
            driver_change_id=change_id(change),
            driver_stage=not is_staged,
            driver_swap=is_staged or not drains,
        )
        swap = item("driver", disruption=disruption, deferred=drains and not is_staged)
        return NodePlan(node=node, items=(swap,), roles=Roles(driver=variables))

    return plan


def workshop_context(
    fleet: Workshop,
    folder: Path,
    plan: Callable[[str, NodeFacts], NodePlan] | None = None,
    declared: Mapping[str, Mapping[str, object]] | None = None,
    draw: Callable[[Sequence[str]], Sequence[str]] = tuple,
) -> ApplyContext:
    """Return the context of an apply; ``declared`` are keys of the section `driver` by node, the draw is by name."""
    stacks = {name: make_stack(driver={"version": VERSION, **(declared or {}).get(name, {})}) for name in fleet.nodes}
    return ApplyContext(
        runner=fleet,
        plan=pure(plan or planner()),
        playbooks=Playbooks(collection=COLLECTION),
        declarations=Declarations(stacks),
        shelf=Shelf(folder),
        draw=draw,
    )
