"""What becomes of events: each belongs to the node that its task ran on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.apply.runner.model import NodeStats, TaskDone, TaskOutcome, TaskStarted
from provision.apply.runner.translate import Translator, condense
from tests.provision.runner.frames import answer, frame

if TYPE_CHECKING:
    from provision.apply.runner.channel import Frame


def translate(*frames: Frame, nodes: tuple[str, ...] = ("n1", "n2")) -> list[TaskStarted | TaskDone]:
    translator = Translator(nodes)
    return [event for one in frames if (event := translator.translate(one)) is not None]


def ended(one: Frame) -> TaskDone:
    begun = frame("started", node=one.header.node, id=one.header.id)
    _, done = translate(begun, one)
    assert isinstance(done, TaskDone)
    return done


def test_start_of_a_task() -> None:
    assert translate(frame("started")) == [TaskStarted("n1", "write", "runtime")]


@pytest.mark.parametrize(
    ("action", "is_step"),
    [
        pytest.param("grapnel.node.configuration", True, id="a module"),
        pytest.param("ansible.builtin.command", True, id="a module of Ansible"),
        pytest.param("ansible.builtin.validate_argument_spec", False, id="validation of arguments"),
        pytest.param("ansible.builtin.include_role", False, id="an include"),
        pytest.param("include_tasks", False, id="a short name"),
        pytest.param("ansible.builtin.assert", False, id="a guard"),
    ],
)
def test_a_task_that_only_arranges_or_checks_is_no_step(action: str, *, is_step: bool) -> None:
    started, done = translate(frame("started", action=action), frame("ok", body=answer(), action=action))
    assert (started.is_step, done.is_step) == (is_step, is_step)


@pytest.mark.parametrize(
    ("event", "outcome"),
    [
        pytest.param(frame("ok", body=answer()), TaskOutcome.OK, id="ok"),
        pytest.param(frame("ok", body=answer(), changed=True), TaskOutcome.CHANGED, id="changed"),
        pytest.param(frame("failed", body=answer(msg="no")), TaskOutcome.FAILED, id="failed"),
        pytest.param(frame("skipped", body=answer()), TaskOutcome.SKIPPED, id="skipped"),
        pytest.param(frame("unreachable", body=answer(msg="no")), TaskOutcome.UNREACHABLE, id="unreachable"),
    ],
)
def test_outcome_of_a_task(event: Frame, outcome: TaskOutcome) -> None:
    assert ended(event).outcome is outcome


@pytest.mark.parametrize(
    ("told", "message", "tail"),
    [
        pytest.param(answer(msg="no package", stderr="a\nb\n"), "no package", ("a", "b"), id="message"),
        pytest.param(answer(module_stderr="boom\nline 3"), "boom", ("boom", "line 3"), id="broken module"),
        pytest.param(answer(censored=True), "the task hides its output (no_log)", (), id="no_log"),
        pytest.param(answer(rc=4), "ended with status 4", (), id="status alone"),
        pytest.param(answer(), "failed without a message", (), id="nothing"),
    ],
)
def test_message_of_a_failure(told: bytes, message: str, tail: tuple[str, ...]) -> None:
    done = ended(frame("failed", body=told))
    assert (done.message, done.tail) == (message, tail)


def test_tail_is_short() -> None:
    done = ended(frame("failed", body=answer(stderr="\n".join(map(str, range(100))))))
    assert (done.tail[0], done.tail[-1]) == ("88", "99")


def test_a_message_has_an_end() -> None:
    done = ended(frame("failed", body=answer(msg="x" * 60_000, stderr="y" * 60_000)))
    assert len(done.message) == len(done.tail[0]) == 1000


def test_kept_values_stay_as_they_came() -> None:
    done = ended(frame("ok", body=answer(values={"facts": {"a": [1, None]}})))
    assert json.loads(done.values["facts"]) == {"a": [1, None]}


def test_ignored_failure_is_marked() -> None:
    assert ended(frame("failed", body=answer(msg="no"), ignored=True)).ignored


def test_statistics_per_node() -> None:
    translator = Translator()
    counts = {"n1": {"ok": 3, "changed": 1, "rescued": 0}, "n2": {"unreachable": 1}}
    assert translator.translate(frame("stats", body=json.dumps(counts).encode())) is None
    assert translator.stats == {"n1": NodeStats(ok=3, changed=1), "n2": NodeStats(unreachable=1)}


def test_an_event_about_a_node_that_the_run_is_not_for_says_nothing_of_it() -> None:
    translator = Translator(("n1",))
    assert translator.translate(frame("started", node="n2")) is None
    assert translator.strangers == {"n2"}


def test_a_second_answer_is_a_failure_of_its_node() -> None:
    good = frame("ok", body=answer(values={"facts": 1}))
    _, first, second = translate(frame("started"), good, good)
    assert isinstance(first, TaskDone)
    assert isinstance(second, TaskDone)
    assert (first.outcome, second.outcome) == (TaskOutcome.OK, TaskOutcome.FAILED)
    assert "that it was not running" in second.message
    assert second.values == {}


def test_an_answer_for_a_task_of_another_node_is_a_failure_of_who_answered() -> None:
    (_, done) = translate(frame("started", node="n1", id="t1"), frame("ok", node="n2", id="t1", body=answer()))
    assert isinstance(done, TaskDone)
    assert (done.node, done.outcome) == ("n2", TaskOutcome.FAILED)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="cut off"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(b'{"values":{"facts":' + b"[" * 90_000 + b"]" * 90_000 + b"}}", id="deep in a kept key"),
        pytest.param(b'{"texts":{"msg":"\\ud800"}}', id="half a surrogate pair"),
        pytest.param(b'{"texts":{"msg":"\xff"}}', id="not utf-8"),
        pytest.param(b'{"texts":{"msg":1}}', id="number for text"),
        pytest.param(b'{"texts":{"message":"x"}}', id="unknown text"),
        pytest.param(b'{"event":"ok"}', id="unknown key"),
        pytest.param(b'{"status":' + b"9" * 5000 + b"}", id="endless number"),
    ],
)
def test_an_answer_that_cannot_be_decoded_is_a_failure_of_its_node_alone(body: bytes) -> None:
    events = translate(
        frame("started", node="n1"),
        frame("started", node="n2"),
        frame("ok", node="n1", body=body),
        frame("ok", node="n2", body=answer(values={"facts": 1})),
    )
    bad, good = events[2:]
    assert isinstance(bad, TaskDone)
    assert isinstance(good, TaskDone)
    assert (bad.node, bad.outcome) == ("n1", TaskOutcome.FAILED)
    assert bad.message.startswith("its answer was refused")
    assert (good.node, good.outcome, good.values) == ("n2", TaskOutcome.OK, {"facts": b"1"})


@given(st.binary(max_size=300) | st.text(max_size=100).map(lambda text: answer(msg=text)))
def test_whatever_a_node_answers_is_an_event_of_that_node(body: bytes) -> None:
    done = ended(frame("failed", node="n2", body=body))
    assert (done.node, done.outcome) == ("n2", TaskOutcome.FAILED)
    assert "\n" not in done.message


@pytest.mark.parametrize(
    ("said", "message"),
    [
        pytest.param("", "the connection ended without a word: is the machine still there?", id="no word"),
        pytest.param(
            "ssh: connect to host n1 port 22: No route to host",
            "ssh: connect to host n1 port 22: No route to host",
            id="no machine",
        ),
        pytest.param(
            "Authorized use only.\nada@n1: Permission denied (publickey).",
            "ada@n1: Permission denied (publickey)",
            id="a banner",
        ),
    ],
)
def test_what_ssh_says_is_told_where_it_was_to_take_a_module(said: str, message: str) -> None:
    """With a declared interpreter it is the first thing, and no node out of reach was told with ssh's words."""
    text = (
        f'Task failed: Data could not be sent to remote host "n1". Make sure this host can be reached over ssh: {said}'
    )

    assert ended(frame("unreachable", body=answer(msg=text))).message == message


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
        pytest.param(
            "Failed to connect to the host via ssh: Authorized use only.\nConnections are recorded.\n\n"
            "ada@n2: Permission denied (publickey).",
            "ada@n2: Permission denied (publickey)",
            id="a machine with a banner",
        ),
        pytest.param(
            "Failed to connect to the host via ssh: Authorized use only.\nConnection closed by 10.0.0.2 port 22",
            "Connection closed by 10.0.0.2 port 22",
            id="a machine with a banner that has no room",
        ),
        pytest.param(
            "Failed to connect to the host via ssh: ada@jump: Permission denied (publickey).\n"
            "kex_exchange_identification: Connection closed by remote host\n"
            "Connection closed by UNKNOWN port 65535",
            "ada@jump: Permission denied (publickey)",
            id="by way of another machine",
        ),
        pytest.param(
            "Failed to connect to the host via ssh: bash: /etc/profile: line 3: x\nPython 3 is missing",
            "bash: /etc/profile: line 3: x",
            id="ssh without words of its own",
        ),
        pytest.param("Bad.\nPermission denied", "Bad", id="another program's words"),
        pytest.param("Task failed: Module failed: E:Unable to locate x", "E:Unable to locate x", id="module"),
        pytest.param("\x1b[0;31m[ERROR]: no\x1b[0m", "no", id="coloured"),
        pytest.param("", "", id="empty"),
    ],
)
def test_condensed_message(text: str, line: str) -> None:
    assert condense(text) == line
