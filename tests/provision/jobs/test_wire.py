"""What goes to Jobs and comes back, through a log that may be cut, repeated, lost or forged."""

from __future__ import annotations

import base64
import itertools
import random
import zlib
from pathlib import Path

import msgspec
import pytest

from provision.apply.runner import NodeStats, RunFinished, RunRequest, RunStatus, TaskDone, TaskOutcome, TaskStarted
from provision.controller.jobs.seal import Seal
from provision.controller.jobs.wire import (
    MARK,
    MAX_EVENTS,
    MAX_LINE_BYTES,
    MAX_RUN_BYTES,
    MAX_STARTS,
    PIECE_BYTES,
    JobRequest,
    LineReader,
    LineWriter,
    LogError,
    request_of,
    spoken_of,
    words_in,
)
from tests.provision.jobs.leaks import leaks

KEEP = frozenset({"facts"})
VALUE = "hunter2hunter2"
SEAL = Seal(bytes(range(32)), "0f6a")
EVENTS = [
    TaskStarted("n1", "gather facts", "facts"),
    TaskDone("n1", "gather facts", TaskOutcome.OK, values={"facts": b'{"a":"\\u00fc","b":[1]}'}),
    TaskDone("n1", "install", TaskOutcome.FAILED, "driver", "no space", ("E: full",), ignored=True, is_step=False),
    RunFinished(RunStatus.FAILED, {"n1": NodeStats()}, "it ended with 2"),
]


def written(*events: object, run: str = "a") -> list[bytes]:
    writer = LineWriter(SEAL, run)
    return [line.encode() for event in events for line in writer.lines(event)]  # type: ignore[arg-type]  # events


def line(text: bytes, number: int = 0, end: str = ".") -> bytes:
    """Return a line of an agent that is sealed as it should be, whatever is in it."""
    return f"{MARK} a {number} {end} {base64.b64encode(SEAL.start('a').seal(number, end, text)).decode()}".encode()


def in_pieces(text: bytes) -> list[bytes]:
    starts = range(0, len(text), PIECE_BYTES)
    ends = [*["+"] * (len(starts) - 1), "."]
    return [line(text[at : at + PIECE_BYTES], index, ends[index]) for index, at in enumerate(starts)]


def reader(node: str = "n1") -> LineReader:
    return LineReader(node, SEAL, KEEP)


def test_events_come_back_as_they_were() -> None:
    assert list(reader().read(written(*EVENTS))) == EVENTS


def test_an_event_of_megabytes_goes_in_short_lines() -> None:
    noise = random.Random(7).randbytes(1_500_000).hex()
    event = TaskDone("n1", "gather facts", TaskOutcome.OK, values={"facts": msgspec.json.encode(noise)})
    lines = written(event)
    assert len(lines) > 100
    assert max(len(line) for line in lines) < 16 << 10
    assert list(reader().read(lines)) == [event]


def test_other_lines_are_text_of_somebody() -> None:
    lines = [b"[WARNING]: deprecated", b"", b"\xff\xfe", *written(*EVENTS), f"{MARK} of no use".encode()]
    assert list(reader().read(lines)) == EVENTS


def test_what_was_read_before_is_skipped_after_a_broken_connection() -> None:
    lines, log = written(*EVENTS), reader()
    first = list(log.read(lines[:2]))
    assert first + list(log.read(lines)) == EVENTS


def test_a_container_that_was_restarted_begins_at_its_beginning() -> None:
    log = reader()
    assert list(log.read(written(*EVENTS[:2]))) == EVENTS[:2]
    assert list(log.read(written(*EVENTS, run="b"))) == EVENTS


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (written(*EVENTS)[1:], "the beginning of its log is lost"),
        ([written(*EVENTS)[0], *written(*EVENTS)[2:]], "lines 1 to 1 of its log are lost"),
        ([f"{MARK} a x . AAAA".encode()], "a line has no number"),
        ([f"{MARK} a 0 . !!!!".encode()], "line 0 of its log cannot be read"),
        ([f"{MARK} ../x 0 . AAAA".encode()], "does not name the start of its agent"),
        ([f"{MARK} a 0 . {'A' * 20_000}".encode()], "line 0 of its log is longer than an agent's"),
        ([line(b"no zlib")], "cannot be unpacked"),
        ([line(zlib.compress(b"{}"))], "an event cannot be read"),
        ([line(zlib.compress(b"x")[:-4])], "an event is longer than .*, or cut"),
        (in_pieces(zlib.compress(bytes(64 << 20))), "an event is longer than"),
    ],
)
def test_a_log_that_is_not_the_agents_is_an_error(lines: list[bytes], reason: str) -> None:
    with pytest.raises(LogError, match=reason):
        list(reader().read(lines))


def test_a_log_that_never_ends_is_not_read_for_ever() -> None:
    with pytest.raises(LogError, match="it is longer than"):
        list(reader().read(itertools.repeat(b"x" * MAX_LINE_BYTES)))


def test_an_agent_that_is_started_all_the_time_is_no_agent() -> None:
    forever = itertools.count()
    lines = (line for number in forever for line in written(EVENTS[0], run=f"start{number}"))
    with pytest.raises(LogError, match=f"more than {MAX_STARTS} times"):
        list(reader().read(lines))


def test_a_job_speaks_of_its_own_node_alone() -> None:
    (event,) = reader("other").read(written(TaskStarted("n1", "x")))
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


def test_values_that_nobody_asked_for_are_dropped_while_reading() -> None:
    event = TaskDone("n1", "gather facts", TaskOutcome.OK, values={"facts": b"1", "other": b'"x"'})
    (found,) = reader().read(written(event))
    assert isinstance(found, TaskDone)
    assert found.values == {"facts": b"1"}


def test_a_run_says_only_so_much() -> None:
    """One node's log took a gigabyte of the controller's memory in eight seconds."""
    long = TaskDone("n1", "x", TaskOutcome.OK, tail=("x" * 60_000,) * 60)
    lines = written(*[long] * (MAX_RUN_BYTES // (60 * 60_000) + 1))
    with pytest.raises(LogError, match=f"longer than {MAX_RUN_BYTES} bytes"):
        for _event in reader().read(lines):
            pass
    with pytest.raises(LogError, match=f"more than {MAX_EVENTS} events"):
        for _event in reader().read(written(*[TaskStarted("n1", "x")] * (MAX_EVENTS + 1))):
            pass


def changed(given: bytes, word: int, to: bytes) -> bytes:
    words = given.split(b" ")
    words[word] = to
    return b" ".join(words)


def flipped(given: bytes, at: int) -> bytes:
    """Return a line with one bit of its text changed."""
    text = bytearray(base64.b64decode(given.split(b" ")[4]))
    text[at] ^= 1
    return changed(given, 4, base64.b64encode(text))


RANDOM = random.Random(3).randbytes(9000).hex()
LONG = TaskDone("n1", "x", TaskOutcome.OK, values={"facts": msgspec.json.encode(RANDOM)})
FIRST, SECOND = written(TaskStarted("n1", "x"), TaskStarted("n1", "y"))
FORGED = "line {} of its log is not sealed by its agent: the image is of another version than the controller, or"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        pytest.param([flipped(FIRST, 0)], FORGED.format(0), id="tampered with"),
        pytest.param([flipped(FIRST, -1)], FORGED.format(0), id="another tag"),
        pytest.param([changed(FIRST, 4, FIRST.split(b" ")[4][:-4])], FORGED.format(0), id="cut"),
        pytest.param([changed(FIRST, 4, b"")], FORGED.format(0), id="empty"),
        pytest.param([changed(FIRST, 4, b"AAAA")], FORGED.format(0), id="shorter than a tag"),
        pytest.param([changed(SECOND, 2, b"0"), FIRST], FORGED.format(0), id="in another order"),
        pytest.param([FIRST, changed(FIRST, 2, b"1")], FORGED.format(1), id="told twice"),
        pytest.param([SECOND, FIRST], "the beginning of its log is lost", id="the second one first"),
        pytest.param([changed(FIRST, 1, b"b")], FORGED.format(0), id="of another start"),
        pytest.param([changed(FIRST, 3, b"+")], FORGED.format(0), id="goes on, it says"),
        pytest.param([changed(written(LONG)[0], 3, b".")], FORGED.format(0), id="ends early, it says"),
        pytest.param([*written(LONG)[:1], changed(FIRST, 2, b"1")], FORGED.format(1), id="spliced"),
    ],
)
def test_a_line_is_believed_at_its_place_alone(lines: list[bytes], reason: str) -> None:
    with pytest.raises(LogError, match=reason):
        list(reader().read(lines))


@pytest.mark.parametrize(
    "seal", [pytest.param(Seal(bytes(32), SEAL.job), id="key"), pytest.param(Seal(SEAL.key, "0f6b"), id="Job")]
)
def test_what_another_job_has_told_is_refused(seal: Seal) -> None:
    with pytest.raises(LogError, match=FORGED.format(0)):
        list(LineReader("n1", seal, KEEP).read(written(*EVENTS)))


def test_what_an_agent_of_before_has_told_is_refused() -> None:
    """It was compressed only: everybody could write it, and read it."""
    event = base64.b64encode(zlib.compress(b'{"type":"finished","status":"successful"}')).decode()
    with pytest.raises(LogError, match=FORGED.format(0)):
        list(reader().read([f"{MARK} {'0' * 32} 0 . {event}".encode()]))


def test_a_forged_line_spoils_nothing_that_came_before() -> None:
    log = reader()
    with pytest.raises(LogError):
        list(log.read([FIRST, changed(SECOND, 1, b"forged")]))
    with pytest.raises(LogError):
        list(log.read([changed(FIRST, 1, b"forged")]))
    assert list(log.read([FIRST, SECOND])) == [TaskStarted("n1", "y")]


def test_what_was_told_before_a_restart_is_not_told_again() -> None:
    """Whoever has root on a node has the log of the start before."""
    log = reader()
    assert len(list(log.read([*written(*EVENTS[:2]), *written(*EVENTS[:1], run="b")]))) == 3
    with pytest.raises(LogError, match="repeats what an agent told before it was started again"):
        list(log.read(written(*EVENTS[:2])))


def test_each_start_seals_with_a_key_of_its_own() -> None:
    one, other = (SEAL.start(run).seal(0, ".", b"the same") for run in ("a", "b"))
    assert one[:8] != other[:8], "a key and a number are used once: a container is restarted with the same Secret"
    assert Seal.fresh("x").key != Seal.fresh("x").key


def test_nobody_finds_a_value_in_a_log() -> None:
    event = TaskDone(
        "n1", "x", TaskOutcome.FAILED, message=VALUE, tail=(VALUE,), values={"facts": f'"{VALUE}"'.encode()}
    )
    lines = written(event, RunFinished(RunStatus.FAILED, message=VALUE))
    assert leaks(lines, VALUE) == []
    assert leaks([base64.b64encode(zlib.compress(VALUE.encode()))], VALUE), "it would be found"
    assert all(VALUE not in spoken_of(each) for each in (event, RunFinished(RunStatus.FAILED, message=VALUE)))


def test_people_read_names_of_tasks_and_how_they_end() -> None:
    assert [spoken_of(each) for each in EVENTS] == [  # type: ignore[arg-type]  # events
        "facts : gather facts",
        "",
        "driver : install: failed",
        "the run ended: failed",
    ]


def test_people_read_the_end_of_a_log_without_what_is_sealed() -> None:
    sealed = "\n".join(each.decode() for each in written(LONG))
    assert (
        words_in(f"{sealed[500:]}\ndriver : install\ngrapnel: error: a bug\n")
        == "driver : install\ngrapnel: error: a bug"
    )
    assert words_in(sealed) == words_in(sealed[-2000:]) == ""
    assert words_in("exec: grapnel: not found\n") == "exec: grapnel: not found"


def test_what_seals_does_not_show_its_key() -> None:
    assert str(SEAL.key) not in f"{SEAL!r} {SEAL} {LineWriter(SEAL, 'a')!r} {reader()!r}"
    assert "key" not in repr(SEAL)
