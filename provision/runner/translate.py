"""Raw events of ansible-runner → typed events. Pure: dictionaries in, values out.

Ansible's messages are written for its own terminal output. Here they become one line without the parts that
say nothing ("Task failed:", the name of the connection plug-in, warnings of the ssh client).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from provision.runner.model import NodeStats, Outcome, TaskDone, TaskStarted

TAIL_LINES = 12
_ENDINGS = {
    "runner_on_ok": Outcome.OK,
    "runner_on_failed": Outcome.FAILED,
    "runner_on_async_failed": Outcome.FAILED,
    "runner_on_skipped": Outcome.SKIPPED,
    "runner_on_unreachable": Outcome.UNREACHABLE,
}
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PREFIX = re.compile(
    r"^(?:(?:Task|Action|Module) failed(?: with exception)?:\s*"
    r"|Failed to connect to the host via ssh:\s*"
    r"|Data could not be sent to remote host \S+ Make sure this host can be reached over ssh:\s*"
    r"|\[ERROR\]:\s*|ERROR!\s*)"
)
_SSH_CHATTER = re.compile(r"^(?:Warning: Permanently added|\*\* |debug\d: |Shared connection to )")


def parse_event(raw: Mapping[str, Any], keep: frozenset[str]) -> TaskStarted | TaskDone | None:
    """Return the typed event, or None for the many that say nothing about a task on a node."""
    kind = raw.get("event", "")
    data = raw.get("event_data") or {}
    node, task = data.get("host"), data.get("task")
    if not isinstance(node, str) or not isinstance(task, str):
        return None
    role = data.get("role") or ""
    if kind == "runner_on_start":
        return TaskStarted(node, task, role)
    if kind not in _ENDINGS:
        return None
    result = data.get("res") or {}
    outcome = _ENDINGS[kind]
    if outcome is Outcome.OK and result.get("changed"):
        outcome = Outcome.CHANGED
    went_wrong = outcome in (Outcome.FAILED, Outcome.UNREACHABLE)
    return TaskDone(
        node=node,
        task=task,
        role=role,
        outcome=outcome,
        message=_result_message(result) if went_wrong else "",
        tail=_tail(result) if went_wrong else (),
        values={key: result[key] for key in sorted(keep) if key in result},
        ignored=bool(data.get("ignore_errors")),
    )


def parse_stats(raw: Mapping[str, Any]) -> dict[str, NodeStats] | None:
    """Return the counts per node of the closing statistics event, None for any other event."""
    if raw.get("event") != "playbook_on_stats":
        return None
    data = raw.get("event_data") or {}
    return {
        node: NodeStats(
            ok=data.get("ok", {}).get(node, 0),
            changed=data.get("changed", {}).get(node, 0),
            failed=data.get("failures", {}).get(node, 0),
            unreachable=data.get("dark", {}).get(node, 0),
        )
        for node in sorted(data.get("processed", {}))
    }


def parse_complaint(raw: Mapping[str, Any]) -> str:
    """Return what an event prints outside any task (Ansible's own errors), without colours; mostly empty."""
    if raw.get("event") not in ("verbose", "error", "warning", "system_warning"):
        return ""
    return _COLOUR.sub("", str(raw.get("stdout") or "")).strip()


def condense(text: str) -> str:
    """Return Ansible's message as one line: the first one that says what is wrong."""
    lines = [_without_prefixes(line.strip()) for line in _COLOUR.sub("", text).splitlines()]
    telling = [line for line in lines if line and not _SSH_CHATTER.match(line)]
    return next(iter(telling or lines), "").rstrip(".")


def _without_prefixes(line: str) -> str:
    while match := _PREFIX.match(line):
        line = line[match.end() :]
    return line


def _result_message(result: Mapping[str, Any]) -> str:
    if "censored" in result:
        return "the task hides its output (no_log)"
    failed_items = [item for item in result.get("results") or [] if isinstance(item, Mapping) and item.get("failed")]
    if failed_items:
        return _result_message(failed_items[0])
    for key in ("msg", "module_stderr", "stderr", "exception"):
        text = result.get(key)
        if isinstance(text, str) and text.strip():
            return condense(text)
    return f"ended with status {result['rc']}" if "rc" in result else "failed without a message"


def _tail(result: Mapping[str, Any]) -> tuple[str, ...]:
    for key in ("stderr", "module_stderr", "stdout", "module_stdout"):
        text = result.get(key)
        if isinstance(text, str) and text.strip():
            lines = [_COLOUR.sub("", line).rstrip() for line in text.splitlines()]
            return tuple([line for line in lines if line][-TAIL_LINES:])
    return ()
