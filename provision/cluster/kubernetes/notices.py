"""Says what a node's upgrade looks like on its Node: as an Event, and as conditions. Pure.

Reasons begin with ``OWN_REASON``, so that what we write is not taken for another program's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from provision.base.printable import printable
from provision.cluster.kubernetes.nodes.others import OWN_REASON
from provision.rollout.model import Phase

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

COMPONENT: Final = "grapnel"
NAMESPACE: Final = "default"  # where Events of objects without a namespace are
MAX_MESSAGE: Final = 1000  # the API server takes 1,024 bytes of an Event's
# KEP-5683, keps/sig-node/5683-lifecycle-conditions: which of them holds in which phase.
LIFECYCLE: Final[Mapping[str, frozenset[Phase]]] = {
    "MaintenancePlanned": frozenset({Phase.CORDON}),
    "DrainInProgress": frozenset({Phase.JOBS, Phase.DRAIN}),
    "Drained": frozenset({Phase.RELEASE, Phase.SWAP, Phase.VERIFY, Phase.RESUME, Phase.ROLLBACK}),
    "MaintenanceInProgress": frozenset({Phase.RELEASE, Phase.SWAP, Phase.VERIFY, Phase.RESUME, Phase.ROLLBACK}),
}
_WORDS: Final = {
    Phase.CORDON: "the driver upgrade has begun: the node takes no new pods",
    Phase.JOBS: "jobs that are to end by themselves are waited for",
    Phase.DRAIN: "pods that have a GPU are evicted",
    Phase.RELEASE: "the node daemon closes the driver",
    Phase.SWAP: "the driver is exchanged",
    Phase.VERIFY: "driver and GPUs are compared with the declaration",
    Phase.RESUME: "the GPUs are offered again",
    Phase.DONE: "the driver upgrade is done: the node is in service",
    Phase.ROLLBACK: "the former driver is brought back",
    Phase.RETURNED: "the node is in service with its former driver",
    Phase.FAILED: "the driver upgrade has failed: the node stays cordoned",
}
_WORDS_IN_PLACE: Final = {
    Phase.SWAP: "its GPUs are about to be given to pods by another interface; pods keep theirs",
    Phase.VERIFY: "it is seen whether pods can be given its GPUs",
    Phase.DONE: "its GPUs are given to pods by another interface",
    Phase.ROLLBACK: "the former interface is brought back",
    Phase.RETURNED: "its GPUs are given to pods by the former interface",
    Phase.FAILED: "the change to another interface has failed: pods may not be given its GPUs",
}
_TAKES_PODS: Final = "the driver upgrade has failed, and the node takes pods"
_FORGOTTEN: Final = "no upgrade of the node is recorded any more"
_BAD: Final = (Phase.FAILED, Phase.RETURNED, Phase.ROLLBACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """That a node entered a phase at ``time``. ``node`` and ``uid`` are those of the Node object.

    ``is_forgotten``: no upgrade of it is recorded any more, and ``phase`` is one that is over. ``takes_pods``: a node
    that failed is in service all the same. ``left`` are conditions that an engine left "True" that was killed.
    ``is_in_place``: the node serves all the time, so that no condition of a maintenance holds.
    """

    node: str
    uid: str
    phase: Phase
    reason: str
    time: datetime
    is_forgotten: bool = False
    takes_pods: bool = False
    is_in_place: bool = False
    left: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Something else that happened to a node in its upgrade; ``word`` is a reason as Kubernetes writes them."""

    node: str
    uid: str
    word: str
    text: str
    time: datetime


def reason_of(phase: Phase) -> str:
    """Return the phase as Kubernetes writes reasons, such as ``GrapnelWaitForJobs``."""
    return OWN_REASON + "".join(word.capitalize() for word in phase.value.split("-"))


def message_of(notice: Notice) -> str:
    """Return what a person reads."""
    if notice.is_in_place and notice.phase in _WORDS_IN_PLACE:
        words = _WORDS_IN_PLACE[notice.phase]
        return printable(f"{words}: {notice.reason}" if notice.reason else words, limit=MAX_MESSAGE)
    words = _WORDS.get(notice.phase, notice.phase.value)
    words = _FORGOTTEN if notice.is_forgotten else _TAKES_PODS if notice.takes_pods else words
    return printable(f"{words}: {notice.reason}" if notice.reason else words, limit=MAX_MESSAGE)


def event(notice: Notice | Remark, *, count: int, first: datetime) -> dict[str, Any]:
    """Return the Event of a notice that was told ``count`` times; its name is the same each time."""
    if isinstance(notice, Remark):
        reason, message, is_bad = f"{OWN_REASON}{notice.word}", printable(notice.text, limit=MAX_MESSAGE), True
    else:
        reason, message = reason_of(notice.phase), message_of(notice)
        is_bad = notice.phase in _BAD or bool(notice.reason)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": event_name(notice), "namespace": NAMESPACE},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": notice.node, "uid": notice.uid},
        "reason": reason,
        "message": message,
        "type": "Warning" if is_bad else "Normal",
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": COMPONENT,
        "firstTimestamp": _time(first),
        "lastTimestamp": _time(notice.time),
        "count": count,
    }


def event_name(notice: Notice | Remark) -> str:
    """Return the name of the Event: one for each node, phase or word, and second of its first time."""
    what = notice.word.lower() if isinstance(notice, Remark) else notice.phase.value
    return f"{notice.node}.grapnel-{what}.{int(notice.time.timestamp()):x}"


def conditions(
    notice: Notice, *, kinds: Collection[str], before: Mapping[str, tuple[str, str]]
) -> list[dict[str, str]]:
    """Return the conditions of ``kinds`` that are no longer as they were; ``before`` has status and reason of each."""
    found: list[dict[str, str]] = []
    if notice.is_in_place:
        return found
    for kind in kinds:
        holds = notice.phase in LIFECYCLE[kind] if kind in LIFECYCLE else not notice.phase.is_over
        status = "True" if holds else "False"
        reason = f"{OWN_REASON}Forgotten" if notice.is_forgotten else reason_of(notice.phase)
        known = before.get(kind)
        if known == (status, reason) or (kind in LIFECYCLE and known is not None and known[0] == status):
            continue
        condition = {"type": kind, "status": status, "reason": reason, "message": message_of(notice)}
        if known is None or known[0] != status:
            condition["lastTransitionTime"] = _time(notice.time)
        found.append(condition | {"lastHeartbeatTime": _time(notice.time)})
    return found


def heartbeats(types: Collection[str], now: datetime) -> list[dict[str, str]]:
    """Return the parts of conditions that say that whoever set them still lives."""
    return [{"type": each, "lastHeartbeatTime": _time(now)} for each in types]


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
