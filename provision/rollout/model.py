"""Defines a node's upgrade as values: its phase, its record, and what is seen of the node.

Times are in UTC, with their zone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from provision.declaration.spec.model import GpuInterface

CLOCKS_DIFFER: Final = timedelta(minutes=1)  # between machines that upgrade the same fleet one after the other


class ChangeKind(StrEnum):
    """What a node is changed for. The phase SWAP does it, VERIFY proves it; all else is the same, but as told below."""

    DRIVER = "driver"  # another driver, or none
    REBOOT = "reboot"  # another boot of what the node has
    MIG = "mig"  # its GPUs divided by MIG as another layout has it
    INTERFACE = "interface"  # its GPUs given to pods by another interface of Kubernetes
    OTHER = "other"  # anything else that a plan cannot do while pods run

    @property
    def is_in_place(self) -> bool:
        """Whether the node serves meanwhile: it has the phases SWAP and VERIFY alone, no cordon, and pods go on."""
        return self is ChangeKind.INTERFACE


class Phase(StrEnum):
    """The phases of a node's upgrade, in order; DONE, RETURNED and FAILED are its ends."""

    CORDON = "cordon"  # takes no new pods
    JOBS = "wait-for-jobs"  # pods that are to end by themselves are waited for; only where some are declared
    DRAIN = "drain"  # pods with a GPU are evicted
    RELEASE = "release"  # the node daemon closes the driver; no process may hold a GPU
    SWAP = "swap"  # packages and kernel module are exchanged
    VERIFY = "verify"  # what runs is compared with what was declared
    RESUME = "resume"  # the node daemon offers the GPUs again
    DONE = "done"  # takes pods again
    ROLLBACK = "rollback"  # the former driver is brought back; VERIFY and RESUME follow, for that one
    RETURNED = "returned"  # takes pods again, with the former driver
    FAILED = "failed"  # stays cordoned until the next apply

    @property
    def is_over(self) -> bool:
        """Whether nothing is under way on the node."""
        return self is Phase.DONE or self is Phase.FAILED or self is Phase.RETURNED

    @property
    def is_in_service(self) -> bool:
        """Whether the node's upgrade is over and the node takes pods again, with one driver or the other."""
        return self is Phase.DONE or self is Phase.RETURNED

    @property
    def may_be_undone(self) -> bool:
        """Whether the driver may have been changed already, so that a failure leads back."""
        return self in _UNDONE

    def is_next_of(self, other: Phase) -> bool:
        """Whether this phase is the one that ordinarily follows ``other``; not every node has jobs to wait for."""
        order = list(Phase)
        between = order[order.index(other) + 1 : order.index(self)]
        is_later = order.index(other) < order.index(self) <= order.index(Phase.DONE)
        return is_later and all(phase is Phase.JOBS for phase in between)


_UNDONE: Final = (Phase.SWAP, Phase.VERIFY, Phase.RESUME)


@dataclass(frozen=True, slots=True)
class Origin:
    """What a node had before its upgrade: driver version and name of the driver change, each empty for none.

    ``change`` is None where it was not remembered. ``interface`` is by what it gave its GPUs to pods, None where that
    does not change.
    """

    version: str
    change: str | None = None
    interface: GpuInterface | None = None


UNTOUCHED: Final = tuple(Phase)[: tuple(Phase).index(Phase.RELEASE)]  # pods may have been asked to leave, no more
BEFORE_SWAP: Final = (*UNTOUCHED, Phase.RELEASE)  # the driver is what it was


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is remembered of one node's upgrade: enough to go on after a crash.

    ``began`` is when the node was taken out of service, ``since`` when this phase began. ``was_cordoned``:
    others had cordoned the node, so it stays so at the end. ``target`` and ``origin`` are driver versions,
    ``origin_change`` is the driver change that the node ran before, empty for none of grapnel's and None where nobody
    asked. ``took`` has how many seconds phases lasted that one engine saw from their beginning to their end.

    ``reason`` and ``failed_in`` say why and where an upgrade failed. ``is_returning``: the node is on its way back, or
    was when that failed; where nothing says in which phase, nothing has failed (`is_called_off`). ``is_unrelated``: the
    failure was not the change's, but one that would have come without it.
    ``ailment`` is what was wrong with the node before it was touched. ``because_of`` names the node of its domain that
    failed, where it is one that goes back with it. ``is_tainted``: a taint keeps what was evicted off the node until it
    is back in service. ``is_touched``: it was past the drain before, so its GPUs may be out of service. ``retry``:
    an administrator wants a failed node tried again by the engine at work. ``is_requested``: a maintenance was
    requested for the node, which ends with its upgrade. ``opted_out`` are labels that keep other tools off it, until
    then as well. ``back_for`` is who wants the node to have its former driver again, until it has: a controller brings
    that about.

    ``kind`` is what the node is out of service for. For a reboot, ``boot`` names the boot that is to end: whoever goes
    on reboots the node only while it still is in that one. For another ``interface``, it is the one that the node is to
    have instead of ``origin_interface``. ``upgraded_from`` is what the node had before the upgrade to ``origin``, the
    last one before this change.
    """

    phase: Phase
    target: str
    origin: str = ""
    began: datetime
    since: datetime
    was_cordoned: bool = False
    reason: str = ""
    failed_in: Phase | None = None
    took: Mapping[Phase, float] = field(default_factory=dict)
    is_tainted: bool = False
    is_touched: bool = False
    origin_change: str | None = None
    is_returning: bool = False
    is_unrelated: bool = False
    ailment: str = ""
    because_of: str = ""
    retry: bool = False
    is_requested: bool = False
    opted_out: tuple[str, ...] = ()
    kind: ChangeKind = ChangeKind.DRIVER
    boot: str = ""
    interface: GpuInterface | None = None
    origin_interface: GpuInterface | None = None
    back_for: str = ""
    upgraded_from: str = ""

    @property
    def before_upgrade(self) -> str:
        """What the node had before its last upgrade, "" for no driver. One that keeps the driver is none."""
        is_kept = self.origin == self.target or (self.kind is not ChangeKind.DRIVER and not self.origin)
        return (self.upgraded_from if is_kept else "") or self.origin

    @property
    def last_upgrade(self) -> Record | None:
        """The record of the upgrade before this change, as far as this one remembers it."""
        done, began = Phase.DONE, self.began
        upgrade = Record(phase=done, target=self.origin, origin=self.upgraded_from, began=began, since=began)
        return upgrade if self.upgraded_from else None

    @property
    def is_called_off(self) -> bool:
        """Whether the node is put back into service with what it has, for ``reason``: its driver was not touched."""
        return self.is_returning and self.failed_in is None and not self.phase.is_over

    @property
    def has_failed(self) -> bool:
        """Whether the upgrade has failed, wherever the node is by now."""
        is_back = self.is_returning and self.failed_in is not None
        return is_back or self.phase is Phase.FAILED or self.phase is Phase.RETURNED

    @property
    def is_blamed(self) -> bool:
        """Whether the upgrade has failed, and it may have been the change that did it."""
        return self.has_failed and not self.is_unrelated and not self.because_of

    @property
    def is_out(self) -> bool:
        """Whether the node is out of service for it, or was left so."""
        return not self.phase.is_in_service and not self.kind.is_in_place

    @property
    def way_back(self) -> Origin | None:
        """What the node is to be again, None while it is on its way to the target."""
        if not self.is_returning:
            return None
        return Origin(self.origin, self.origin_change, self.former_interface)

    @property
    def former_interface(self) -> GpuInterface | None:
        """By what the node gave its GPUs to pods before; None where that does not change."""
        return None if self.interface is None else self.origin_interface or self.interface.other

    @property
    def former(self) -> str:
        """What the node had before its change, in words."""
        if self.former_interface is not None:
            return f"giving GPUs by {self.former_interface.words}"
        return self.origin or "having no driver"

    @property
    def complaint(self) -> str:
        """What went wrong, in words that say where the node is with it; empty where nothing has."""
        if self.is_called_off:
            return f"is put back into service with what it has: {self.reason}"
        if self.phase is Phase.FAILED or not self.has_failed:
            return self.reason
        if self.phase is Phase.RETURNED and not self.is_returning:
            return f"is in service as it was: {self.reason}"
        cause = f"{self.because_of} of its domain" if self.because_of else self.failed_in
        if self.phase is Phase.RETURNED:
            since = f", since {cause} failed" if cause else ""
            return f"returned to {self.former}{since}: {self.reason}"
        return f"goes back to {self.former}, since {cause} failed: {self.reason}"

    def measured(self, before: Record | None, began: datetime) -> Record:
        """Return the record with how long the phase ``before`` it lasted, where this engine, ``began``, saw all of it.

        A phase that failed, is of the way back, or was entered by an engine that is gone says nothing of how long one
        takes.
        """
        if before is None or self.phase is Phase.CORDON or self.is_returning:
            return self
        took = dict(before.took)
        if self.phase.is_next_of(before.phase) and began <= before.since <= self.since:
            took[before.phase] = round((self.since - before.since).total_seconds(), 1)
        return replace(self, took=took)

    def entering(self, phase: Phase, now: datetime) -> Record:
        """Return the record of the same change at the beginning of another phase.

        Written out: thousands may enter one in one decision, for which ``dataclasses.replace`` takes too long.
        """
        return Record(
            phase=phase,
            target=self.target,
            origin=self.origin,
            began=self.began,
            since=now,
            was_cordoned=self.was_cordoned,
            reason=self.reason,
            failed_in=self.failed_in,
            took=self.took,
            is_tainted=self.is_tainted,
            is_touched=self.is_touched,
            origin_change=self.origin_change,
            is_returning=self.is_returning,
            is_unrelated=self.is_unrelated,
            ailment=self.ailment,
            because_of=self.because_of,
            is_requested=self.is_requested,
            opted_out=self.opted_out,
            kind=self.kind,
            boot=self.boot,
            interface=self.interface,
            origin_interface=self.origin_interface,
            back_for="" if phase.is_over else self.back_for,
            upgraded_from=self.upgraded_from,
        )

    def sent_back(self, upgraded_to: str, who: str, now: datetime) -> Record:
        """Return the record of a node that is in service with its former driver since that was asked for.

        It is that of an upgrade to ``upgraded_to`` that has come to no good end, which is not the driver's fault: the
        node is not tried again by itself, and counts against no limit.
        """
        returned = replace(
            self,
            target=upgraded_to or self.target,
            origin=self.target,
            upgraded_from="",
            origin_change=None,
            reason=f"{who} asked for it (`grapnel rollback`)",
            failed_in=None,
            is_returning=True,
            is_unrelated=True,
            because_of="",
        )
        return returned.entering(Phase.RETURNED, now)

    @property
    def was_sent_back(self) -> bool:
        """Whether the node has its former driver again since that was asked for."""
        return self.phase is Phase.RETURNED and self.is_returning and not self.failed_in and not self.because_of

    def believed_since(self, now: datetime, began: datetime) -> datetime:
        """Return ``since``, or ``began`` where that is still to come: a node's own kubelet may write its record.

        Otherwise a node could hold the others up for as long as it likes with one date.
        """
        return self.since if self.since <= now + CLOCKS_DIFFER else began


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPod:
    """A pod that has a GPU, or that is waited for. ``controller`` is such as ``ReplicaSet/web-5d8f``, empty for none.

    ``is_mirror_or_daemon``: it would come back, so that it is left alone. ``stays`` is why it is left alone otherwise,
    in words. ``only_waited`` is why it has to leave, but is never asked to. ``ending`` is how far a terminating one is.
    ``is_replaced_first``: its replacement has to be ready elsewhere before it leaves. ``created`` is when it was, None
    where that is not known; ``is_restarted``: it stays while a driver is exchanged, and is evicted afterwards.
    ``node`` is its node, as the cluster calls it. ``is_by_claims``: it has its GPUs by claims, and a taint ends it.
    ``tolerates_s`` is for how many seconds its claims tolerate that one, infinite where it is evicted instead.
    """

    namespace: str
    name: str
    uid: str
    is_terminating: bool
    is_mirror_or_daemon: bool
    controller: str = ""
    stays: str = ""
    only_waited: str = ""
    ending: str = ""
    is_replaced_first: bool = False
    created: datetime | None = None
    is_restarted: bool = False
    is_by_claims: bool = False
    tolerates_s: float = 0.0
    node: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Work that another scheduler than Kubernetes gave a node: it is waited for, and never ended.

    ``id`` is what people call it, ``left`` how much of its time is left at most, in the scheduler's words.
    """

    id: str
    user: str = ""
    left: str = ""

    def __str__(self) -> str:
        user = f" of {self.user}" if self.user else ""
        return f"{self.id}{user} ({self.left} left)" if self.left else f"{self.id}{user}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """What has become of the request for a node's maintenance.

    ``words`` say it for people. ``is_granted``: the node may be taken out of service.
    """

    words: str
    is_requested: bool = False
    is_granted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """What is seen of one node where its state lives.

    ``labels`` are those that the declaration asks for. ``held_by`` says which other tool is at the node, and what ends
    that. ``is_skipped``: an administrator wants it left alone. Of two nodes of a wave, the one of higher ``priority``
    is first. ``jobs`` are the pods that are to end by themselves, whether they have a GPU or not. ``ailment`` is what
    the node itself says to be wrong with its GPUs. ``work`` are the jobs of another scheduler than Kubernetes.
    ``why_not_ready`` is what that scheduler says about a node that is not. ``maintenance`` is None where none has to be
    requested before the node leaves service. ``opt_out`` are the labels that are to keep other tools off it meanwhile,
    and that are not set yet. ``remarks`` are what else people should know, and ``pool`` the MachineConfigPool that the
    node is in. ``uid`` is that of the object, another one when it was deleted and registered again; ``machine_id`` says
    whether that is the same machine. ``told`` are the conditions by which an engine said that the node is being
    upgraded. ``boot`` is the boot that its kubelet last reported, ``driver`` the one that its node daemon reports;
    empty where none does.
    """

    name: str
    record: Record | None
    is_cordoned: bool
    is_ready: bool
    gpu_pods: tuple[GpuPod, ...] = ()
    ailment: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    held_by: str = ""
    is_skipped: bool = False
    priority: int = 0
    jobs: tuple[GpuPod, ...] = ()
    work: tuple[Job, ...] = ()
    why_not_ready: str = ""
    maintenance: Maintenance | None = None
    opt_out: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    pool: str = ""
    uid: str = ""
    machine_id: str = ""
    told: tuple[str, ...] = ()
    boot: str = ""
    driver: str = ""
