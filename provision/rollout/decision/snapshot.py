"""Defines what a decision is made from, and what it says, as values."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from provision.rollout.model import ChangeKind, GpuPod, NodeView, Phase, Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from provision.declaration.spec.model import GpuInterface
    from provision.rollout.decision.policy import DrainPolicy
    from provision.rollout.interface.gates import GateState
    from provision.rollout.interface.pause import Pause
    from provision.rollout.model import Origin

LOST_TIMEOUT: Final = timedelta(minutes=30)

# For how long a reason to wait is borne while nothing else is under way, in seconds.
AT_ONCE: Final = 0  # only a person can change it
A_MINUTE: Final = 60  # a kubelet that was restarted is ready within seconds; one that is gone is noticed after 40 s
LONG: Final = 30 * 60  # what another tool does to a node takes as long as a reboot, or a repair
FOR_EVER: Final = 2**60  # it is known, or was asked for, that it passes


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that has a GPU open, as the node tells it."""

    pid: int
    command: str
    unit: str = ""
    pod_uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """How a step of a phase ended: done, or failed, or (neither) held by others and to be tried again.

    ``is_unreachable``: it failed since the node could not be reached, so that it is not known what became of it.
    """

    phase: Phase
    ended: datetime
    is_done: bool = False
    failure: str = ""
    is_unreachable: bool = False
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """Everything that a decision may know about one node.

    ``target`` and ``origin`` are driver versions. ``drain`` is how pods and processes are made to leave the node,
    and within which time. ``is_disruptive``: its plan needs the node out of service.
    ``is_as_declared``: its plan is empty. ``obstacle``: why nothing can be done about the node, empty where something
    can. ``is_busy``: a step runs on it now; ``step`` is the last one that ended in this process. ``blocked`` are the
    pods (by UID) that could not be evicted when it was last tried, with the reason. ``holding`` are pods
    that did not ask for a GPU and of which a process was found to hold one. ``has_failed``: it failed in this
    process, so that it is not tried again. ``wave`` is the index of its wave in the policy, None where it takes part in
    none. ``rank`` is its place among nodes of the same wave and priority. ``zone`` is empty where it is in none; where
    zones take turns, ``zone_turn`` is its place among them.

    ``origin_change`` is the driver change that the node runs (`Record`). ``may_return``: a failure leads back to the
    former driver. ``lost_since`` is since when the node cannot be reached, or is missing where its state lives
    (``is_missing``: nothing can be written about it), None while it is there; for ``lost_timeout`` that is borne.
    ``domain`` names the nodes that are changed together with it, empty for one that is on its own. ``kind`` is what it
    is changed for; for a reboot, ``boot`` is the boot that is to end, or has, for another interface ``interface`` the
    one that it is to have. ``is_unwritten``: its
    machine was registered again, as a new object that does not have the record yet. ``is_replaced``: another machine
    was registered under its name. ``is_released``: its node daemon does not offer the GPUs, whatever records say.
    ``is_half_done``: a change of its driver had not come to its end when it was looked at, and may go on by itself.
    ``back_for`` is who wants it to have its former driver again, instead of ``back_from``, and to be left with that.
    ``called_off`` is why it is to have no change any more, empty where it is.

    Derived from these, as every decision asks for it of every node: ``name`` is the inventory's, ``record`` what is
    remembered of the node's upgrade. ``is_in_flight``: it is between its beginning and its end, and was not given up
    there. ``wants_to_begin``: it has to be taken out of service, or is still out of it since it failed.
    ``has_failed_before``: an earlier apply left it failed. ``is_changed``: it is in service with the target since its
    upgrade. ``is_blamed``: it failed in this process, and the change may be the cause. ``is_serving``: it is ready and
    takes pods. ``is_fit``: it is ready, and is not to be left alone. ``turn`` orders those that wait.
    """

    view: NodeView
    target: str
    origin: str = ""
    drain: DrainPolicy
    is_disruptive: bool = False
    is_as_declared: bool = False
    obstacle: str = ""
    is_busy: bool = False
    step: StepResult | None = None
    blocked: Mapping[str, str] = field(default_factory=dict)
    holding: tuple[GpuPod, ...] = ()
    has_failed: bool = False
    wave: int | None = None
    rank: int = 0
    zone: str = ""
    zone_turn: int = 0
    origin_change: str | None = None
    may_return: bool = True
    lost_since: datetime | None = None
    lost_timeout: timedelta = LOST_TIMEOUT
    is_missing: bool = False
    domain: str = ""
    is_unwritten: bool = False
    is_replaced: bool = False
    is_released: bool = False
    is_half_done: bool = False
    kind: ChangeKind = ChangeKind.DRIVER
    boot: str = ""
    interface: GpuInterface | None = None
    former_interface: GpuInterface | None = None
    back_for: str = ""
    back_from: str = ""
    called_off: str = ""

    name: str = field(init=False, repr=False, compare=False)
    record: Record | None = field(init=False, repr=False, compare=False)
    is_in_flight: bool = field(init=False, repr=False, compare=False)
    wants_to_begin: bool = field(init=False, repr=False, compare=False)
    has_failed_before: bool = field(init=False, repr=False, compare=False)
    is_changed: bool = field(init=False, repr=False, compare=False)
    is_blamed: bool = field(init=False, repr=False, compare=False)
    is_serving: bool = field(init=False, repr=False, compare=False)
    is_fit: bool = field(init=False, repr=False, compare=False)
    turn: tuple[int, int, int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Work out, once for all decisions, what each of them asks of every node."""
        view, record = self.view, self.view.record
        phase = None if record is None else record.phase
        is_in_service = phase is None or phase.is_in_service
        derive = object.__setattr__
        derive(self, "name", view.name)
        derive(self, "record", record)
        derive(self, "is_in_flight", phase is not None and not phase.is_over and not self.has_failed)
        is_wanted = self.is_disruptive if is_in_service else phase is Phase.FAILED
        is_barred = self.has_failed or self.obstacle or self.called_off
        derive(self, "wants_to_begin", is_wanted and not is_barred)
        derive(self, "has_failed_before", phase is Phase.FAILED and not self.has_failed)
        is_same = record is not None and record.target == self.target
        if self.kind is ChangeKind.REBOOT:  # an earlier reboot is not the one that is wanted
            is_same = record is not None and record.kind is self.kind and record.boot == self.boot
        if self.kind is ChangeKind.INTERFACE:
            is_same = record is not None and record.kind is self.kind and record.interface is self.interface
        derive(self, "is_changed", is_same and phase is Phase.DONE)
        derive(self, "is_blamed", is_same and self._may_be_blamed())
        derive(self, "is_serving", view.is_ready and not view.is_cordoned)
        derive(self, "is_fit", view.is_ready and not view.is_skipped and not view.held_by)
        derive(self, "turn", (self.wave or 0, self.zone_turn, -view.priority, self.rank))

    def _may_be_blamed(self) -> bool:
        record = self.view.record
        if record is None or not (self.has_failed or record.is_returning):
            return False
        return record.is_blamed or (self.is_missing and record.phase.may_be_undone)

    @property
    def holding_uids(self) -> frozenset[str]:
        """The pods that hold a GPU, as the node says, and that are not known to have one."""
        if self.step is None or not self.step.holders or self.record is None or self.record.phase is not Phase.RELEASE:
            return frozenset()
        known = {pod.uid for pod in self.view.gpu_pods}
        return frozenset(one.pod_uid for one in self.step.holders if one.pod_uid and one.pod_uid not in known)

    @property
    def serves_with(self) -> str | None:
        """The driver version of a node that is in service, empty for none; None where it may be another by now."""
        if self.is_half_done:
            return None
        return self.target if self.is_changed or self.is_as_declared else self.origin

    @property
    def takes_pods(self) -> bool:
        """Whether it is in service, whatever its record says: it was never cordoned, or was uncordoned."""
        return not self.view.is_cordoned and not self.is_released

    @property
    def why_no_change(self) -> str:
        """Why the node is to have no change any more, empty where it may have one."""
        return self.called_off or ("it is skipped" if self.view.is_skipped else "")

    @property
    def kept_out(self) -> str:
        """Why the node is left alone although it could be changed, with what ends that; empty where it is not."""
        view = self.view
        if view.is_skipped:
            return f"is skipped: `grapnel skip --undo {view.name}` ends that"
        return view.held_by


_GIVEN: Final = tuple(each.name for each in fields(NodeState) if each.init)
_get: Final = attrgetter(*_GIVEN)


def changed(node: NodeState, **what: object) -> NodeState:
    """Return a node of which something is different, as ``dataclasses.replace`` does, in a third of its time."""
    return NodeState(**(dict(zip(_GIVEN, _get(node), strict=True)) | what))


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The fleet at one moment, in the inventory's order.

    ``began`` is when this process began: what happened before it runs against no limit. ``still_since`` is since
    when nothing is under way although nodes wait, None while something is. ``pause`` is somebody's word that no further
    node may begin. ``domains`` has the places of each domain's nodes in ``nodes``.
    """

    nodes: tuple[NodeState, ...]
    began: datetime
    still_since: datetime | None = None
    pause: Pause | None = None
    passed: int = 0
    domains: Mapping[str, Sequence[int]] = field(default_factory=dict)
    gates: tuple[GateState, ...] = ()


@dataclass(frozen=True, slots=True)
class Write:
    """Remember a record and (``cordoned`` is not None) cordon or uncordon the node, in one.

    ``remark`` is what people should know of the node from then on.
    """

    node: str
    record: Record
    cordoned: bool | None
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Evict:
    """Ask these pods to leave the node."""

    node: str
    pods: tuple[GpuPod, ...]


@dataclass(frozen=True, slots=True)
class RunStep:
    """Run the step of a phase: RELEASE, SWAP, VERIFY, RESUME or ROLLBACK; on the way ``back`` for what was before."""

    node: str
    phase: Phase
    back: Origin | None = None


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Put a node back into service whose driver was not touched, and forget its change.

    ``cordoned``: False to uncordon it, None to leave its cordon, which others have set. ``why`` is why its change is
    not wanted any more, empty where it is put off. ``record`` is what is remembered of an upgrade before it.
    """

    node: str
    cordoned: bool | None
    why: str = ""
    record: Record | None = None


@dataclass(frozen=True, slots=True)
class RequestMaintenance:
    """Ask for a node's maintenance; its record says so already."""

    node: str


Action = Write | Evict | RunStep | Withdraw | RequestMaintenance


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do now, why each node that does not move does not, and why no further node begins.

    ``is_over``: nothing is under way and nothing will be. ``passed`` is how many waves are left behind. ``given_up``
    are nodes in flight that have been missing for too long. ``is_closed``: nodes wait for a time, or for a gate.
    """

    actions: tuple[Action, ...] = ()
    waiting: Mapping[str, str] = field(default_factory=dict)
    stop: str | None = None
    is_over: bool = False
    is_still: bool = False
    passed: int = 0
    given_up: tuple[str, ...] = ()
    is_closed: bool = False
