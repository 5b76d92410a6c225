"""What goes to Jobs and comes back, through a log that may be cut, repeated, lost or forged."""

from __future__ import annotations

import base64
import itertools
import random
import zlib
from pathlib import Path

import msgspec
import pytest

from provision.jobs.wire import (
    MARK,
    MAX_LINE_BYTES,
    MAX_STARTS,
    JobRequest,
    LineReader,
    LineWriter,
    LogError,
    request_of,
)
from provision.runner import NodeStats, Outcome, RunFinished, RunRequest, RunStatus, TaskDone, TaskStarted

EVENTS = [
    TaskStarted("n1", "gather facts", "facts"),
    TaskDone("n1", "gather facts", Outcome.OK, values={"facts": b'{"a":"\\u00fc","b":[1]}'}),
    TaskDone("n1", "install", Outcome.FAILED, "driver", "no space", ("E: full",), ignored=True, is_step=False),
    RunFinished(RunStatus.FAILED, {"n1": NodeStats()}, "it ended with 2"),
]


def written(*events: object, run: str = "a") -> list[bytes]:
    writer = LineWriter(run)
    return [line.encode() for event in events for line in writer.lines(event)]  # type: ignore[arg-type]  # events


def test_events_come_back_as_they_were() -> None:
    assert list(LineReader("n1").read(written(*EVENTS))) == EVENTS


def test_an_event_of_megabytes_goes_in_short_lines() -> None:
    noise = random.Random(7).randbytes(1_500_000).hex()  # noqa: S311 - only hard to compress
    event = TaskDone("n1", "gather facts", Outcome.OK, values={"facts": msgspec.json.encode(noise)})
    lines = written(event)
    assert len(lines) > 100
    assert max(len(line) for line in lines) < 16 << 10
    assert list(LineReader("n1").read(lines)) == [event]


def test_other_lines_are_text_of_somebody() -> None:
    lines = [b"[WARNING]: deprecated", b"", b"\xff\xfe", *written(*EVENTS), f"{MARK} of no use".encode()]
    assert list(LineReader("n1").read(lines)) == EVENTS


def test_what_was_read_before_is_skipped_after_a_broken_connection() -> None:
    lines, reader = written(*EVENTS), LineReader("n1")
    first = list(reader.read(lines[:2]))
    assert first + list(reader.read(lines)) == EVENTS


def test_a_container_that_was_restarted_begins_at_its_beginning() -> None:
    reader = LineReader("n1")
    assert list(reader.read(written(*EVENTS[:2]))) == EVENTS[:2]
    assert list(reader.read(written(*EVENTS, run="b"))) == EVENTS


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (written(*EVENTS)[1:], "the beginning of its log is lost"),
        ([written(*EVENTS)[0], *written(*EVENTS)[2:]], "lines 1 to 1 of its log are lost"),
        ([f"{MARK} a x . AAAA".encode()], "a line has no number"),
        ([f"{MARK} a 0 . !!!!".encode()], "line 0 of its log cannot be read"),
        ([f"{MARK} a 0 . {base64.b64encode(b'no zlib').decode()}".encode()], "cannot be unpacked"),
        ([f"{MARK} a 0 . {base64.b64encode(zlib.compress(b'{}')).decode()}".encode()], "an event cannot be read"),
        (
            [f"{MARK} a 0 . {base64.b64encode(zlib.compress(bytes(64 << 20))[:-4]).decode()}".encode()],
            "an event is longer than",
        ),
    ],
)
def test_a_log_that_is_not_the_agents_is_an_error(lines: list[bytes], reason: str) -> None:
    with pytest.raises(LogError, match=reason):
        list(LineReader("n1").read(lines))


def test_a_log_that_never_ends_is_not_read_for_ever() -> None:
    with pytest.raises(LogError, match="it is longer than"):
        list(LineReader("n1").read(itertools.repeat(b"x" * MAX_LINE_BYTES)))


def test_an_agent_that_is_started_all_the_time_is_no_agent() -> None:
    forever = itertools.count()
    lines = (line for number in forever for line in written(EVENTS[0], run=f"start-{number}"))
    with pytest.raises(LogError, match=f"more than {MAX_STARTS} times"):
        list(LineReader("n1").read(lines))


def test_a_job_speaks_of_its_own_node_alone() -> None:
    (event,) = LineReader("other").read(written(TaskStarted("n1", "x")))
    assert event == TaskStarted("other", "x")


def test_each_node_is_handed_its_own_request() -> None:
    request = RunRequest(
        playbook=Path("/collection/apply.yml"),
        inventory=("a,b,",),
        nodes=("a", "b"),
        extra_vars={"grapnel_plan": {"node": "a"}},
        timeout_s=60,
        keep=frozenset({"facts"}),
    )
    job = msgspec.json.decode(request_of(request, "b"), type=JobRequest)
    assert (job.node, job.playbook, job.timeout_seconds, job.keep) == ("b", "apply", 60, ("facts",))
    assert job.variables == {"grapnel_plan": {"node": "a"}}
