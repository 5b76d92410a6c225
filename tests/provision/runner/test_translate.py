"""Raw events as ansible-runner 2.4 with ansible-core 2.19 writes them."""

from __future__ import annotations

from typing import Any

import pytest

from provision.runner.model import NodeStats, Outcome, TaskDone, TaskStarted
from provision.runner.translate import condense, parse_complaint, parse_event, parse_stats


def raw(kind: str, result: dict[str, Any] | None = None, **more: object) -> dict[str, Any]:
    return {
        "event": kind,
        "event_data": {"host": "n1", "task": "write", "role": "runtime", "res": result, **more},
    }


def test_start_of_a_task() -> None:
    assert parse_event(raw("runner_on_start"), frozenset()) == TaskStarted("n1", "write", "runtime")


@pytest.mark.parametrize(
    ("event", "outcome"),
    [
        pytest.param(raw("runner_on_ok", {"changed": False}), Outcome.OK, id="ok"),
        pytest.param(raw("runner_on_ok", {"changed": True}), Outcome.CHANGED, id="changed"),
        pytest.param(raw("runner_on_ok", {}), Outcome.OK, id="ok with an empty result"),
        pytest.param(raw("runner_on_failed", {"msg": "no"}), Outcome.FAILED, id="failed"),
        pytest.param(raw("runner_on_skipped", {"changed": False}), Outcome.SKIPPED, id="skipped"),
        pytest.param(raw("runner_on_unreachable", {"msg": "no"}), Outcome.UNREACHABLE, id="unreachable"),
    ],
)
def test_outcome_of_a_task(event: dict[str, Any], outcome: Outcome) -> None:
    done = parse_event(event, frozenset())
    assert isinstance(done, TaskDone)
    assert done.outcome is outcome


@pytest.mark.parametrize(
    "event",
    [
        pytest.param({"event": "playbook_on_start", "event_data": {}}, id="no task"),
        pytest.param({"event": "verbose", "stdout": "x"}, id="no data"),
        pytest.param(raw("runner_item_on_ok", {}), id="one item of a loop"),
    ],
)
def test_other_events_say_nothing(event: dict[str, Any]) -> None:
    assert parse_event(event, frozenset()) is None


@pytest.mark.parametrize(
    ("result", "message", "tail"),
    [
        pytest.param({"msg": "no package", "stderr": "a\nb\n"}, "no package", ("a", "b"), id="message"),
        pytest.param({"module_stderr": "boom\nline 3"}, "boom", ("boom", "line 3"), id="broken module"),
        pytest.param({"censored": "hidden"}, "the task hides its output (no_log)", (), id="no_log"),
        pytest.param(
            {
                "msg": "One or more items failed",
                "results": [{"failed": False}, {"failed": True, "msg": "2nd"}],
            },
            "2nd",
            (),
            id="item of a loop",
        ),
        pytest.param({"rc": 4}, "ended with status 4", (), id="status alone"),
        pytest.param({}, "failed without a message", (), id="nothing"),
    ],
)
def test_message_of_a_failure(result: dict[str, Any], message: str, tail: tuple[str, ...]) -> None:
    done = parse_event(raw("runner_on_failed", result), frozenset())
    assert isinstance(done, TaskDone)
    assert (done.message, done.tail) == (message, tail)


def test_tail_is_short() -> None:
    done = parse_event(raw("runner_on_failed", {"stderr": "\n".join(map(str, range(100)))}), frozenset())
    assert isinstance(done, TaskDone)
    assert done.tail[0] == "88"
    assert done.tail[-1] == "99"


def test_only_what_was_asked_for_is_kept_of_a_result() -> None:
    event = raw("runner_on_ok", {"facts": {"a": 1}, "invocation": {}})
    done = parse_event(event, frozenset({"facts", "other"}))
    assert isinstance(done, TaskDone)
    assert done.values == {"facts": {"a": 1}}


def test_ignored_failure_is_marked() -> None:
    done = parse_event(raw("runner_on_failed", {"msg": "no"}, ignore_errors=True), frozenset())
    assert isinstance(done, TaskDone)
    assert done.ignored


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param(
            "Task failed: Failed to connect to the host via ssh: ssh: connect to host n2: No route to host",
            "ssh: connect to host n2: No route to host",
            id="ssh",
        ),
        pytest.param(
            "Failed to connect to the host via ssh: Warning: Permanently added 'n2'\nn2: Permission denied.",
            "n2: Permission denied",
            id="ssh that talks first",
        ),
        pytest.param("Task failed: Module failed: E:Unable to locate x", "E:Unable to locate x", id="module"),
        pytest.param("\x1b[0;31m[ERROR]: no\x1b[0m", "no", id="coloured"),
        pytest.param("", "", id="empty"),
    ],
)
def test_condensed_message(text: str, line: str) -> None:
    assert condense(text) == line


def test_statistics_per_node() -> None:
    counts = {"processed": {"n1": 1, "n2": 1}, "ok": {"n1": 3}, "changed": {"n1": 1}, "dark": {"n2": 1}}
    stats = parse_stats({"event": "playbook_on_stats", "event_data": counts})
    assert stats == {"n1": NodeStats(ok=3, changed=1), "n2": NodeStats(unreachable=1)}
    assert parse_stats(raw("runner_on_ok", {})) is None


def test_complaint_is_what_ansible_says_outside_a_task() -> None:
    said = parse_complaint({"event": "verbose", "stdout": "\x1b[0;31m[ERROR]: no\x1b[0m\r\n"})
    assert said == "[ERROR]: no"
    assert parse_complaint({"event": "playbook_on_play_start", "stdout": "PLAY [all]"}) == ""
