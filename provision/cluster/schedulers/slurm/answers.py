"""Reads what scontrol and squeue print, of Slurm 22.05 and newer. Pure.

The text of ``scontrol show node`` is read and not its JSON: older versions have none, each newer one has another, and
it is three times as long. Keys are looked for where a line of it begins, so that no comment or reason is taken for one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final

from provision.rollout.model import Job

if TYPE_CHECKING:
    from collections.abc import Iterator

# Safe for a shell: behind ssh, one reads them.
JOB_FORMAT: Final = "%i,%T,%L,%u,%N"
JOB_STATES: Final = "RUNNING,SUSPENDED,COMPLETING,CONFIGURING,SIGNALING,STAGE_OUT,STOPPED,RESIZING"
_JOB_FIELDS: Final = 5
_NODE: Final = re.compile(r"^NodeName=(\S+)", re.MULTILINE)
_ADDRESS: Final = re.compile(r"^ {3}NodeAddr=(\S+) NodeHostName=(\S+)", re.MULTILINE)
_STATE: Final = re.compile(r"^ {3}State=(\S+)", re.MULTILINE)
_STARTED: Final = re.compile(r"^ {3}BootTime=\S+ SlurmdStartTime=(\d\S*)", re.MULTILINE)
_FLAG: Final = re.compile(r"[A-Z_]+")  # older versions put signs behind a state, such as IDLE*+DRAIN
# Slurm adds who gave it and when; a reason of several lines goes on, further to the right.
_REASON: Final = re.compile(r"^ {3}Reason=(.*?)(?: \[([^\[\]@]*)@[^\[\]]*\])?$", re.MULTILINE)
_RESERVATION: Final = re.compile(
    r"^ReservationName=(\S+) StartTime=\S+ EndTime=(\S+) .*? Nodes=(\S+) .*?Flags=(\S*)", re.MULTILINE
)
_USER: Final = re.compile(r"[A-Za-z0-9_.@+\\-]{1,64}")
_ID: Final = re.compile(r"[0-9A-Za-z_+\[\]%,-]{1,64}")
_LEFT: Final = re.compile(r"[0-9:-]{1,20}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmNode:
    """A node as slurmctld has it. ``states`` are its state and its flags, ``reason_user`` is who gave the reason.

    ``started`` is when its slurmd started that registered last, in the time zone of whatever runs scontrol: such times
    are only compared with each other. BootTime may differ by a second from one registration to the next.
    """

    name: str
    address: str
    hostname: str
    states: frozenset[str]
    reason: str = ""
    reason_user: str = ""
    started: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A reservation for maintenance; ``until`` is in Slurm's words."""

    name: str
    until: str
    nodes: frozenset[str]


def parse_nodes(text: str) -> dict[str, SlurmNode]:
    """Return the nodes of ``scontrol show node``, by their names; what has no state is left out."""
    starts = [(found.start(), found[1]) for found in _NODE.finditer(text)]
    nodes = {}
    for (start, name), (end, _next) in zip(starts, [*starts[1:], (len(text), "")], strict=False):
        block = text[start:end]
        address, state, reason = _ADDRESS.search(block), _STATE.search(block), _REASON.search(block)
        started = _STARTED.search(block)
        if state is None:
            continue
        flags = {*_FLAG.findall(state[1]), *(["NOT_RESPONDING"] if "*" in state[1] else [])}
        nodes[name] = SlurmNode(
            name=name,
            address="" if address is None else address[1],
            hostname="" if address is None else address[2],
            states=frozenset(flags),
            reason="" if reason is None else reason[1],
            reason_user="" if reason is None else reason[2] or "",
            started="" if started is None else started[1],
        )
    return nodes


def parse_jobs(text: str) -> dict[str, tuple[Job, ...]]:
    """Return the jobs of squeue in ``JOB_FORMAT``, by node. Names that users give to jobs are not asked for."""
    found: dict[str, list[Job]] = {}
    for line in text.splitlines():
        fields = line.split(",", _JOB_FIELDS - 1)
        if len(fields) != _JOB_FIELDS:
            continue
        identity, state, left, user, nodes = fields
        if not _ID.fullmatch(identity):
            continue
        job = Job(
            id=f"job {identity}" if state == "RUNNING" else f"job {identity}, {state.lower()}",
            user=user if _USER.fullmatch(user) else "",
            left=left if _LEFT.fullmatch(left) else "",
        )
        for node in expand_hostlist(nodes):
            found.setdefault(node, []).append(job)
    return {node: tuple(jobs) for node, jobs in found.items()}


def parse_reservations(text: str) -> Iterator[Reservation]:
    """Yield those for maintenance that are on, of ``scontrol show reservation --oneliner``."""
    for line in text.splitlines():
        found = _RESERVATION.match(line)
        if found is not None and "MAINT" in found[4].split(",") and " State=ACTIVE" in line:
            yield Reservation(name=found[1], until=found[2], nodes=frozenset(expand_hostlist(found[3])))


# Reads Slurm's lists of nodes, such as ``gpu[01-03,07],login``.

MAX_NODES: Final = 100_000
_WORD: Final = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_PART: Final = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE: Final = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")


def expand_hostlist(text: str) -> Iterator[str]:
    """Yield the nodes of a list, at most ``MAX_NODES``; what is not understood counts as a name."""
    left = MAX_NODES
    for word in _WORD.findall(text):
        parts = [_choices(inside) if inside else [outside] for inside, outside in _PART.findall(word)]
        for names in product(*parts):
            if left <= 0:
                return
            left -= 1
            yield "".join(names)


def _choices(inside: str) -> list[str]:
    """Return what stands for one pair of brackets; leading zeros are part of the names."""
    found: list[str] = []
    for each in inside.split(","):
        numbers = _RANGE.fullmatch(each)
        if numbers is None:
            found.append(each)
            continue
        first, last = numbers[1], numbers[2]
        end = min(int(last), int(first) + MAX_NODES - 1)
        found += [f"{number:0{len(first)}}" for number in range(int(first), end + 1)]
    return found


# Says what Slurm's states mean for a rollout.

OURS: Final = "grapnel:"  # how a reason of ours begins
_DRAIN: Final = "DRAIN"
_BUSY: Final = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
_DOWN: Final = "DOWN"
_NOT_READY: Final = {
    "NOT_RESPONDING": "slurmd does not answer",
    "INVALID_REG": "slurmd has registered with less than slurm.conf says",
    "UNKNOWN": "slurmd has not registered yet",
    "ERROR": "Slurm says ERROR",
    "FAIL": "Slurm says FAIL",
    "FUTURE": "it is declared for the future",
    "POWERED_DOWN": "it is powered down",
    "POWERING_DOWN": "it is being powered down",
    "POWERING_UP": "it is being powered up",
    "POWER_DOWN": "it is to be powered down",
    "REBOOT_ISSUED": "Slurm is rebooting it",
}
_REBOOT_REQUESTED: Final = "REBOOT_REQUESTED"


def is_drained(node: SlurmNode) -> bool:
    """Tell whether the node gets no new jobs: Slurm says DRAIN before and after its jobs have ended."""
    return _DRAIN in node.states


def is_ours(node: SlurmNode) -> bool:
    """Tell whether grapnel has drained the node; newer versions keep a reason after a resume."""
    return is_drained(node) and node.reason.startswith(OURS)


def is_busy(node: SlurmNode) -> bool:
    """Tell whether a job, or its epilog, still has the node."""
    return bool(node.states & _BUSY)


def is_unheard_of(node: SlurmNode) -> bool:
    """Tell whether slurmctld has started and not heard of the node since: what runs on it is not in its state yet."""
    return "UNKNOWN" in node.states


def why_not_ready(node: SlurmNode) -> str:
    """Return why a node could not work if it were not drained, empty for one that could.

    Slurm 22.05 says DOWN of a node that rebooted while it was drained, until it is resumed, although slurmd answers.
    """
    for state, meaning in _NOT_READY.items():
        if state in node.states:
            return _because(meaning, node)
    if _DOWN in node.states and not is_ours(node):
        return _because("Slurm says DOWN", node)
    return ""


def why_held(node: SlurmNode) -> str:
    """Return why others than us are about to work at the node, empty where they are not."""
    if _REBOOT_REQUESTED in node.states:
        return "somebody has asked Slurm to reboot it (`scontrol cancel_reboot` takes that back)"
    return ""


def _because(meaning: str, node: SlurmNode) -> str:
    return f"{meaning} ({node.reason})" if node.reason and not node.reason.startswith(OURS) else meaning
