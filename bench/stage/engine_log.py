"""Reads from containerd's log when each CRI call began and ended, to the nanosecond.

Kubernetes' container statuses only have seconds.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.nodes import Node

_LINE = re.compile(r'^time="(?P<time>[^"]+)" level=info msg="(?P<text>.*)"$')
# The first alternatives are for containerd 1.x, the second for containerd 2; a call's last line is like its first.
_CALLS = {
    "sandbox": re.compile(r'RunPodSandbox for (?:&PodSandboxMetadata\{Name:|name:\\")(?P<name>[\w.-]+)'),
    "create": re.compile(r'CreateContainer within sandbox \\"(?P<name>\w+)\\" for '),
    "start": re.compile(r'StartContainer for \\"(?P<name>\w+)\\"'),
}
_END = re.compile(r' returns (?:successfully$|(?:sandbox|container) id \\"(?P<id>\w+)\\"$)')


@dataclass(frozen=True)
class Call:
    """A call of the CRI: when it began and ended, in seconds of CLOCK_MONOTONIC, and the id that it returned."""

    began: float
    ended: float
    returned: str = ""

    @property
    def took_s(self) -> float:
        """The duration in seconds."""
        return self.ended - self.began


@dataclass(frozen=True)
class Start:
    """The calls that created one pod with one container; ``container`` is its id."""

    container: str
    sandbox: Call
    create: Call
    start: Call


def read_starts(node: Node) -> dict[str, Start]:
    """Return the completed starts of pods with one container, by pod name."""
    argv = ["journalctl", "--unit", "containerd", "--boot", "--output", "cat", "--no-pager"]
    return parse_starts(node.run(argv).stdout, time.time() - time.monotonic())


def parse_starts(log: str, offset_s: float) -> dict[str, Start]:
    """Read containerd's log; ``offset_s`` is the time of day minus the monotonic clock."""
    calls = _parse_calls(log, offset_s)
    starts = {}
    for (verb, pod), sandbox in calls.items():
        create = calls.get(("create", sandbox.returned))
        start = create and calls.get(("start", create.returned))
        if verb == "sandbox" and create and start:
            starts[pod] = Start(create.returned, sandbox, create, start)
    return starts


def _parse_calls(log: str, offset_s: float) -> dict[tuple[str, str], Call]:
    """Return the completed calls, by method and object."""
    began: dict[tuple[str, str], float] = {}
    calls: dict[tuple[str, str], Call] = {}
    for line in log.splitlines():
        found = _LINE.match(line)
        if not found:
            continue
        for verb, pattern in _CALLS.items():
            if about := pattern.match(found["text"]):
                key, moment = (verb, about["name"]), datetime.fromisoformat(found["time"]).timestamp() - offset_s
                if end := _END.search(found["text"]):
                    calls[key] = Call(began.get(key, moment), moment, end["id"] or "")
                else:
                    began[key] = moment
    return calls
