"""Gives simulated machines Node objects: what a controller reads of them, and what patches change.

A patch is what the product renders; it is merged as an API server does that, and refused as it does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from provision.cluster.kubernetes.api.exchange import StatusError
from provision.cluster.kubernetes.nodes.marks import UPGRADE, render_patch
from provision.cluster.kubernetes.nodes.node_view import DRIVER_READY
from provision.cluster.kubernetes.nodes.others import SKIP
from provision.cluster.kubernetes.objects.core import Condition, Metadata, Status
from provision.cluster.kubernetes.objects.nodes import Node, NodeInfo, NodeSpec, NodeStatus, Taint
from provision.cluster.record import decode_record, encode_record
from provision.controller.nodes import DRIFT
from provision.rollout.errors import UnreachableError
from provision.rollout.model import Phase
from provision.rollout.simulate.cluster import SimulatedCluster
from provision.rollout.simulate.machine import Machine
from provision.rollout.simulate.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from datetime import datetime

    from provision.cluster.kubernetes.api.exchange import Request
    from provision.rollout.model import Record
    from provision.rollout.simulate.machine import DriverExchange
    from provision.rollout.simulate.world import _Run
    from provision.rollout.step import StepOutcome

POOL: Final = {"pool": "gpus"}
TOLD_S: Final = 4.0  # after the GPUs are offered again, until the node's daemon has written which driver it has
_CONFLICT, _NOT_FOUND = 409, 404


@dataclass(kw_only=True)
class NodeMachine(Machine):
    """A machine with the rest of its Node: ``boot`` is counted, ``reported`` the driver that its daemon told last.

    ``is_drifted``: its daemon has found that something of it is not as it was declared.
    """

    annotations: dict[str, str] = field(default_factory=dict)
    marks: dict[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    version: int = 1
    boot: int = 1
    reported: str = ""
    reported_at: str = ""
    is_drifted: bool = False


def node_of(machine: NodeMachine) -> Node:
    """Return its Node as the API server has it."""
    record = machine.record
    answers = Condition(
        type=DRIVER_READY,
        status="True" if machine.reported and not machine.is_released else "Unknown",
        message=f"driver {machine.reported} answers",
        last_heartbeat_time=machine.reported_at,
    )
    skip = {SKIP: "true"} if machine.is_skipped else {}
    ready = "Unknown" if not machine.is_up else "False" if machine.ill else "True"
    drift = (Condition(type=DRIFT, status="False"),) if machine.is_drifted else ()
    return Node(
        metadata=Metadata(
            name=machine.name,
            uid=machine.uid,
            resource_version=str(machine.version),
            labels={**machine.labels, **POOL, **machine.marks, **skip},
            annotations=machine.annotations | ({} if record is None else {UPGRADE: encode_record(record)}),
        ),
        spec=NodeSpec(unschedulable=machine.is_cordoned, taints=machine.taints),
        status=NodeStatus(
            conditions=(Condition(type="Ready", status=ready), answers, *drift),
            node_info=NodeInfo(machine_id=machine.name, boot_id=f"b{machine.boot}", kernel_version="6.12"),
        ),
    )


def merge(machine: NodeMachine, body: Mapping[str, Any]) -> None:
    """Change a Node as a merge patch says. Raises StatusError where it is about another version or object."""
    metadata, spec = body.get("metadata", {}), body.get("spec", {})
    if metadata.get("uid", machine.uid) != machine.uid:
        raise refusal(_CONFLICT, "Precondition failed: UID in precondition")
    if metadata.get("resourceVersion", str(machine.version)) != str(machine.version):
        raise refusal(_CONFLICT, "the object has been modified")
    annotations, labels = dict(metadata.get("annotations") or {}), dict(metadata.get("labels") or {})
    if UPGRADE in annotations:
        text = annotations.pop(UPGRADE)
        machine.record = None if text is None else decode_record(text)
    if SKIP in labels:
        machine.is_skipped = labels.pop(SKIP) == "true"
    _merge(machine.annotations, annotations)
    _merge(machine.marks, labels)
    if "unschedulable" in spec:
        machine.is_cordoned = bool(spec["unschedulable"])
    if "taints" in spec:
        machine.taints = msgspec.convert(spec["taints"], tuple[Taint, ...])


def write_record(machine: NodeMachine, record: Record | None, *, cordoned: bool | None) -> None:
    """Have a Node remember a record, by the patch that the product writes."""
    merge(machine, render_patch(record, cordoned=cordoned, node=node_of(machine)))
    machine.record = record  # as it was, and not as it is read back: times are written to the second


def _merge(present: dict[str, str], changes: Mapping[str, str | None]) -> None:
    for key, value in changes.items():
        if value is None:
            present.pop(key, None)
        else:
            present[key] = value


def refusal(code: int, message: str) -> StatusError:
    """Return how an API server refuses."""
    return StatusError(code, Status(code=code, message=message))


class NodeWorld(World):
    """Machines with Nodes. ``watch`` is shown a machine whenever what runs on it, or what is said of it, may differ."""

    watch: Callable[[NodeMachine], None] = staticmethod(lambda _machine: None)

    def machine(self, name: str) -> NodeMachine:
        """Return a machine."""
        found = self.machines[name]
        assert isinstance(found, NodeMachine)
        return found

    def changed(self, node: str) -> None:
        """Tell everybody who watches."""
        machine = self.machine(node)
        machine.version += 1
        super().changed(node)
        self.watch(machine)

    def _start_change(self, machine: Machine, change: DriverExchange) -> None:
        super()._start_change(machine, change)
        self.watch(self.machine(machine.name))

    def _end_change(self, machine: Machine, change: DriverExchange) -> None:
        super()._end_change(machine, change)
        self.watch(self.machine(machine.name))

    def _answer(self, run: _Run, outcome: StepOutcome) -> None:
        super()._answer(run, outcome)
        if run.phase is Phase.RESUME and outcome.failure is None:
            self.time.after(TOLD_S, lambda: self.report(run.machine.name))

    def report(self, node: str) -> None:
        """Have the daemon of a node write which driver it has, unless it is released."""
        machine = self.machine(node)
        if machine.is_up and not (machine.is_released or machine.is_deleted) and machine.reported != machine.driver:
            machine.reported, machine.reported_at = machine.driver, self.time().isoformat()
            self.changed(node)

    def bring_up(self, node: str) -> None:
        """Have a node answer again, in another boot."""
        machine = self.machine(node)
        machine.boot += not machine.is_up
        super().bring_up(node)
        self.time.after(TOLD_S, lambda: self.report(node))

    def delete(self, node: str) -> None:
        """Take a Node out of the cluster."""
        machine = self.machine(node)
        machine.annotations, machine.marks, machine.taints, machine.reported = {}, {}, (), ""
        super().delete(node)

    def join(self, node: str) -> None:
        """Have a Node of that name join the cluster again."""
        super().join(node)
        self.time.after(TOLD_S, lambda: self.report(node))


@dataclass(eq=False)
class NodeCluster(SimulatedCluster):
    """One engine's view of a fleet of Nodes."""

    def apply(self, machine: Machine, record: Record | None, *, cordoned: bool | None) -> None:
        """Write as an API server is written to."""
        assert isinstance(machine, NodeMachine)
        write_record(machine, record, cordoned=cordoned)


@dataclass
class NodesApi:
    """Answers what is asked of single Nodes, as `provision.cluster.kubernetes.api.client.Api` does."""

    world: NodeWorld
    guard: Callable[[], None] = lambda: None
    name: str = "the simulated cluster"

    def guarded(self, guard: Callable[[], None]) -> NodesApi:
        """Return one that calls ``guard`` first."""
        return NodesApi(self.world, guard)

    def now(self) -> datetime:
        """Return its time."""
        return self.world.time()

    def call(self, request: Request, _type: type[Node], *, expected: Collection[int] = ()) -> Node:
        """Return the Node that was read or changed."""
        del expected
        self.guard()
        if self.world.is_away:
            raise UnreachableError(f"{self.name} does not answer")
        name = request.path.rpartition("/")[2]
        machine = self.world.machine(name)
        if machine.is_deleted:
            raise refusal(_NOT_FOUND, f"{name} not found")
        if request.method == "PATCH":
            merge(machine, request.body or {})
            self.world.changed(name)
        return node_of(machine)
