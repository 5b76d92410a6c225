"""What containerd says of its calls: when each began and ended, to the nanosecond, from its own log.

The container statuses of Kubernetes have seconds only.
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
# The first forms are those of containerd 1.x, the second one is containerd 2's; a call ends with a line like its first.
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
        """How long it took."""
        return self.ended - self.began


@dataclass(frozen=True)
class Start:
    """The calls that made one pod with one container; ``container`` is its id."""

    container: str
    sandbox: Call
    create: Call
    start: Call


def read_starts(node: Node) -> dict[str, Start]:
    """Return the starts of pods with one container by the pod's name, as far as they came to their end."""
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
    """Return the calls that ended, by what was called and for what."""
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
