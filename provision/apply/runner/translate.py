"""Translates the frames of a run into typed events. Pure.

An event belongs to the node that Ansible ran the task on, and a task that was begun on a node ends there once.
Whatever does not keep to that, or cannot be decoded, is a failure of that node.

Ansible's messages are written for its own terminal output. Here they become one line without the parts that
say nothing ("Task failed:", the name of the connection plug-in, warnings of the ssh client).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from provision.apply.runner.ailments import recognize
from provision.apply.runner.channel import BROKEN, TaskAnswer, decode_answer, decode_counts
from provision.apply.runner.model import NodeStats, TaskDone, TaskOutcome, TaskStarted
from provision.base.printable import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from provision.apply.runner.channel import Frame, Header

TAIL_LINES: Final = 12
_LINE_LENGTH: Final = 1000
_OUTCOMES: Final = {
    "ok": TaskOutcome.OK,
    "failed": TaskOutcome.FAILED,
    "skipped": TaskOutcome.SKIPPED,
    "unreachable": TaskOutcome.UNREACHABLE,
}
# Actions that read, check and arrange: they do nothing on a node.
_NO_STEPS: Final = frozenset(
    {
        "assert",
        "facts",
        "fail",
        "import_role",
        "import_tasks",
        "include_role",
        "include_tasks",
        "include_vars",
        "meta",
        "run_lock",
        "set_fact",
        "validate_argument_spec",
    }
)
_SPOKEN: Final = ("msg", "module_stderr", "stderr", "exception")
_SILENT: Final = ("", "(traceback unavailable)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# The second where a module was the first thing that was sent, as with a declared interpreter.
_VIA_SSH: Final = (
    r"(?:Failed to connect to the host via ssh"
    r"|Data could not be sent to remote host \S+ Make sure this host can be reached over ssh):\s*"
)
_PREFIX = re.compile(
    r"^(?:(?:Task|Action|Module) failed(?: with exception)?:\s*"
    rf"|{_VIA_SSH}"
    r"|\[ERROR\]:\s*|ERROR!\s*)"
)
_SSH_CHATTER = re.compile(r"^(?:Warning: Permanently added|\*\* |debug\d: |Shared connection to )")
# What ssh itself says of why there is no connection: the machine's banner comes before it, and a warning about a key.
_SSH_REASON = re.compile(
    r"^(?:ssh: |(?:\S+: )?Permission denied|Connection (?:closed|reset|timed out|to \S+ port)|Received disconnect"
    r"|Unable to negotiate |kex_exchange_identification: )"
)


@dataclass(slots=True)
class Translator:
    """The events of one run. ``nodes`` are those that it is for, empty where that is every node of the inventory."""

    nodes: Collection[str] = ()
    stats: Mapping[str, NodeStats] | None = None
    has_no_hosts: bool = False
    tasks: int = 0
    strangers: set[str] = field(default_factory=set)
    _open: Counter[tuple[str, str]] = field(default_factory=Counter)

    def translate(self, frame: Frame) -> TaskStarted | TaskDone | None:
        """Return the event of a frame, None for one that says nothing about a task on a node of the run."""
        header = frame.header
        if header.event == "stats":
            self.stats = _parse_stats(frame.body)
        elif header.event == "no-hosts":
            self.has_no_hosts = True
        elif self.nodes and header.node not in self.nodes:
            self.strangers.add(header.node)
        else:
            self.tasks += 1
            return self._start(header) if header.event == "started" else self._end(header, frame.body)
        return None

    def _start(self, header: Header) -> TaskStarted:
        self._open[header.node, header.id] += 1
        return TaskStarted(header.node, header.task, header.role, _is_step(header))

    def _end(self, header: Header, body: bytes) -> TaskDone:
        if not self._open[header.node, header.id]:
            return _refusal(header, "it answered for a task that it was not running")
        self._open[header.node, header.id] -= 1
        if header.refused:
            return _refusal(header, f"its answer was refused: {printable(header.refused, limit=_LINE_LENGTH)}")
        try:
            return _done(header, decode_answer(body))
        except BROKEN as error:
            return _refusal(header, f"its answer was refused: {printable(str(error), limit=_LINE_LENGTH)}")


def _is_step(header: Header) -> bool:
    return header.action.rpartition(".")[2] not in _NO_STEPS


def _refusal(header: Header, reason: str) -> TaskDone:
    """Return the failure of a node whose event is not believed."""
    return TaskDone(header.node, header.task, TaskOutcome.FAILED, header.role, reason)


def _done(header: Header, answer: TaskAnswer) -> TaskDone:
    outcome = _OUTCOMES[header.event]
    if outcome is TaskOutcome.OK and header.changed:
        outcome = TaskOutcome.CHANGED
    went_wrong = outcome in (TaskOutcome.FAILED, TaskOutcome.UNREACHABLE)
    return TaskDone(
        node=header.node,
        task=header.task,
        role=header.role,
        outcome=outcome,
        message=_message(answer, is_unreachable=outcome is TaskOutcome.UNREACHABLE) if went_wrong else "",
        tail=_tail(answer) if went_wrong else (),
        values={key: bytes(value) for key, value in answer.values.items()},
        ignored=header.ignored,
        is_step=_is_step(header),
    )


def _parse_stats(body: bytes) -> Mapping[str, NodeStats]:
    try:
        counts = decode_counts(body)
    except BROKEN:
        return {}
    return {
        node: NodeStats(ok=one.ok, changed=one.changed, failed=one.failures, unreachable=one.unreachable)
        for node, one in sorted(counts.items())
    }


def condense(text: str) -> str:
    """Return Ansible's message as one line: the first one that says what is wrong."""
    lines = [_without_prefixes(line.strip()) for line in _COLOUR.sub("", text).splitlines()]
    telling = [line for line in lines if line and not _SSH_CHATTER.match(line)] or lines
    reasons = [line for line in telling if _SSH_REASON.match(line)] if re.search(_VIA_SSH, text) else []
    return _shortened(next(iter(reasons or telling), "").rstrip("."))


def _without_prefixes(line: str) -> str:
    while match := _PREFIX.match(line):
        line = line[match.end() :]
    return line


def _shortened(line: str) -> str:
    return line if len(line) <= _LINE_LENGTH else f"{line[: _LINE_LENGTH - 1]}…"


def _message(answer: TaskAnswer, *, is_unreachable: bool) -> str:
    if answer.censored:
        return "the task hides its output (no_log)"
    said = [text for key in _SPOKEN if (text := answer.texts.get(key, "")).strip() not in _SILENT]
    if known := recognize(said):
        return _shortened(known)
    for text in said:
        if line := condense(text):
            return line
    if is_unreachable:
        return "the connection ended without a word: is the machine still there?"
    return "failed without a message" if answer.status is None else f"ended with status {answer.status}"


def _tail(answer: TaskAnswer) -> tuple[str, ...]:
    for key in ("stderr", "module_stderr", "stdout", "module_stdout"):
        text = answer.texts.get(key, "")
        if text.strip():
            lines = [_shortened(_COLOUR.sub("", line).rstrip()) for line in text.splitlines()]
            return tuple([line for line in lines if line][-TAIL_LINES:])
    return ()
