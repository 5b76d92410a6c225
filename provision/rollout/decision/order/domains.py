"""Treats nodes of one domain as one unit: an NVLink clique or a rack, in which one driver version serves. Pure.

They begin together; none is swapped before all of them are released, none is resumed before all are verified, and none
takes pods before all are resumed. When one fails, all go back. So no two versions are ever in service in one domain.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from provision.rollout.decision.drain import has_to_leave
from provision.rollout.model import BEFORE_SWAP, Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from provision.rollout.decision.snapshot import NodeState
    from provision.rollout.model import Record


class Progress(IntEnum):
    """How far a node has come on the way that its domain goes together."""

    BEGUN = 0
    RELEASED = 1
    VERIFIED = 2
    RESUMED = 3


_HAS: Final = {
    Phase.SWAP: Progress.RELEASED,
    Phase.VERIFY: Progress.RELEASED,
    Phase.RESUME: Progress.VERIFIED,
}
_NEEDS: Final = {  # of all, before one of them leaves the phase
    Phase.RELEASE: Progress.RELEASED,
    Phase.VERIFY: Progress.VERIFIED,
    Phase.RESUME: Progress.RESUMED,
}


@dataclass(slots=True)
class Domain:
    """The nodes of a domain at one moment.

    ``waiting`` are those that have to begin, ``flying`` those that are on their way to the target. ``failed`` is one
    that failed in this process, or is on its way back. ``absent`` is one that would have to take part and cannot,
    ``why_absent`` says why. ``has_done``: one of them is in service with the target already. ``serving`` are all that
    are in service, with whichever driver. ``called_off`` is one that is not to be changed any more. ``is_changing``:
    one has yet to be. ``is_committed``: the driver of one may be another by now, so that all of them go on.
    """

    title: str
    waiting: list[NodeState] = field(default_factory=list)
    flying: list[NodeState] = field(default_factory=list)
    failed: NodeState | None = None
    absent: NodeState | None = None
    has_done: bool = False
    serving: list[NodeState] = field(default_factory=list)
    slowest: NodeState | None = None
    progress: Progress = Progress.RESUMED
    called_off: NodeState | None = None
    is_changing: bool = False
    is_committed: bool = False

    @property
    def why_absent(self) -> str:
        """Why the node that is ``absent`` cannot take part; empty where none is."""
        return self.absent.obstacle if self.absent is not None else ""

    def why_not_begin(self) -> str:
        """Return why no further node of it begins, empty where all of them may."""
        if self.failed is not None:
            record = self.failed.record
            is_back = record is not None and record.phase.is_over
            then = "the next apply tries it again" if is_back or self.failed.has_failed else "it goes back first"
            return f"{self.failed.name} of its domain {self.title} has failed: {then}"
        if self.absent is not None:
            return f"{self.absent.name} of its domain {self.title} cannot take part: {self.why_absent}"
        return ""

    def why_wait(self, phase: Phase) -> str:
        """Return for which of its nodes one has to wait that has done its phase, empty where it goes on."""
        needs = _NEEDS.get(phase)
        if needs is None:
            return ""
        if not self.has_done and (self.absent or self.waiting):
            missing = self.absent or self.waiting[0]
            reason = self.why_absent or "it has yet to begin"
            return f"waits for {missing.name} of its domain {self.title}: {reason}"
        if self.progress < needs and self.slowest is not None and self.slowest.record is not None:
            return f"waits for {self.slowest.name} of its domain {self.title}: {self.slowest.record.phase}"
        return ""

    def why_not_back(self, version: str) -> str:
        """Return why a node with its former driver again must not serve: another one serves with another driver."""
        for node in self.serving:
            has = node.serves_with
            if has is None:
                return f"{node.name} of its domain {self.title} may come to have another one by itself"
            if has and has != version:
                return f"{node.name} of its domain {self.title} serves with {has}"
        return ""

    @property
    def missing(self) -> NodeState | None:
        """The first of its nodes that has not begun, where others are on their way and none is done."""
        if self.has_done:
            return None
        return self.absent or next(iter(self.waiting), None)


class Domains:
    """The domains of a snapshot, each looked at when it is asked for; ``members`` are places in ``nodes``."""

    def __init__(self, nodes: Sequence[NodeState], members: Mapping[str, Sequence[int]]) -> None:
        self._nodes, self._members = nodes, members
        self._seen: dict[str, Domain] = {}

    def of(self, node: NodeState) -> Domain | None:
        """Return the domain of a node, None for one that is on its own."""
        title = node.domain
        found = self._seen.get(title)
        if found is None and title in self._members:
            found = self._seen[title] = look(title, [self._nodes[place] for place in self._members[title]])
        return found


def members_of(nodes: Iterable[NodeState]) -> dict[str, list[int]]:
    """Return the places of each domain's nodes; those of a domain stay the same for a whole rollout."""
    found: dict[str, list[int]] = {}
    for place, node in enumerate(nodes):
        if node.domain:
            found.setdefault(node.domain, []).append(place)
    return found


def look(title: str, nodes: Iterable[NodeState]) -> Domain:
    """Return what a domain comes to."""
    domain = Domain(title)
    for node in nodes:
        record = node.record
        if (record is None or record.phase.is_in_service) and not (node.is_missing or node.view.is_cordoned):
            domain.serving.append(node)
        if domain.called_off is None and node.is_disruptive and not node.has_failed and node.why_no_change:
            domain.called_off = node
        if node.wants_to_begin:  # also one that was done, and has had its driver changed since
            domain.waiting.append(node)
        elif node.has_failed:
            _count_failed(domain, node)
        elif node.is_in_flight and record is not None:
            _count_flying(domain, node, record)
        elif node.is_changed:
            domain.has_done = domain.is_committed = True
        elif node.obstacle and not node.is_as_declared:
            domain.absent = domain.absent or node
    domain.is_changing = any(node.is_disruptive for node in (*domain.waiting, *domain.flying))
    return domain


def _count_failed(domain: Domain, node: NodeState) -> None:
    """Count a node that failed; one that has no way back is out of service, and delays no other."""
    if not node.may_return:
        return
    record = node.record
    is_first_cause = record is None or not record.because_of
    if domain.failed is None or is_first_cause:
        domain.failed = node


def _count_flying(domain: Domain, node: NodeState, record: Record) -> None:
    if record.is_called_off:  # on a way of its own, which is short
        return
    if record.is_returning:
        _count_failed(domain, node)
        return
    domain.flying.append(node)
    if record.phase not in BEFORE_SWAP or record.is_touched or node.is_half_done:
        domain.is_committed = True
    progress = _progress(node, record)
    if domain.slowest is None or progress < domain.progress:
        domain.slowest, domain.progress = node, progress


def _progress(node: NodeState, record: Record) -> Progress:
    """Return how far a node has come; one whose kubelet is gone is waited for where a limit of time applies to that."""
    step = node.step
    has_ended = step is not None and step.phase is record.phase and step.is_done
    is_done = has_ended and node.view.is_ready
    if record.phase is Phase.RELEASE:
        return Progress.RELEASED if is_done and not has_to_leave(node) else Progress.BEGUN
    if has_ended and record.phase is Phase.VERIFY:  # the driver works, and whether the kubelet does is seen in resume
        return Progress.VERIFIED
    if is_done and record.phase is Phase.RESUME:
        return Progress.RESUMED
    return _HAS.get(record.phase, Progress.BEGUN)
