"""Encodes what goes to a Job and what comes back as lines of its pod's log (docs/contracts/node-job). Pure.

A log is text, in lines that may be cut, repeated after a broken connection, and lost when it is rotated; many may read
it, and whoever has root on the node may write what they like into it. So each event is compressed and goes into short
numbered lines that are sealed (``seal``), what does not continue the last one is found, and all sizes are bounded, for
root on the node has the key as well. A restarted container begins at line 0 again.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from provision.apply.runner import NodeStats, RunFinished, RunStatus, TaskDone, TaskOutcome, TaskStarted
from provision.base.decoding import decoder_of
from provision.base.printable import printable
from provision.controller.jobs.seal import TAG_BYTES, SealError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from provision.apply.runner import RunRequest
    from provision.controller.jobs.seal import Seal, Start

Event = TaskStarted | TaskDone | RunFinished  # what an agent tells; that one was cut off, it cannot tell itself
SCHEMA: Final = "grapnel.dev/node-job/v1alpha2"
MARK: Final = "grapnel-run"
PIECE_BYTES: Final = 6144  # of an event in one line: kubelets and runtimes cut lines at 16 KiB
MAX_TEXT_BYTES: Final = (PIECE_BYTES + TAG_BYTES + 2) // 3 * 4  # of one piece that is sealed, as base64
MAX_EVENT_BYTES: Final = 8 << 20  # unpacked; facts are 4 MiB at most
MAX_PIECES: Final = MAX_EVENT_BYTES // PIECE_BYTES + 1
MAX_RUN_BYTES: Final = 128 << 20  # of all events of a run, unpacked
MAX_EVENTS: Final = 20_000  # of a run; a playbook has some hundred tasks, and an agent may be started again
MAX_LINE_BYTES: Final = 64 << 10  # of a log; the agent's own are shorter
MAX_LOG_BYTES: Final = 1 << 30  # of a run, what is read again after a broken connection included
MAX_STARTS: Final = 64  # of the agent in one run: a Job restarts it less often
_LONGEST_RUN: Final = 64
_WORDS: Final = 5  # of a line
_MAX_DIGITS: Final = 9  # of its number
_LONGEST_WORD: Final = 100
_MORE, _END = "+", "."
_Name = Annotated[str, msgspec.Meta(max_length=4096)]
_Text = Annotated[str, msgspec.Meta(max_length=64 * 1024)]


class LogError(Exception):
    """A log does not hold what the agent writes: lines are missing, or another program has written them."""


class JobRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What a Job is to do: a playbook of the collection, by name, on the node that it is on."""

    schema: Literal["grapnel.dev/node-job/v1alpha2"]
    node: _Name
    playbook: Annotated[str, msgspec.Meta(pattern="^[a-z_]+$", max_length=64)]
    variables: Mapping[str, Any] = {}
    check: bool = False
    timeout_seconds: Annotated[int, msgspec.Meta(ge=1, le=86_400)] = 7200
    keep: tuple[_Name, ...] = ()


class _Started(msgspec.Struct, frozen=True, kw_only=True, tag="started", rename="camel"):
    task: _Name
    role: _Name = ""
    is_step: bool = True


class _Done(msgspec.Struct, frozen=True, kw_only=True, tag="done", rename="camel"):
    task: _Name
    outcome: TaskOutcome
    role: _Name = ""
    message: _Text = ""
    tail: Annotated[tuple[_Text, ...], msgspec.Meta(max_length=64)] = ()
    values: dict[str, msgspec.Raw] = {}
    ignored: bool = False
    is_step: bool = True


class _Finished(msgspec.Struct, frozen=True, kw_only=True, tag="finished", rename="camel"):
    status: RunStatus
    message: _Text = ""


_WRONG: Final = frozenset({TaskOutcome.FAILED, TaskOutcome.UNREACHABLE})
_EVENT: Final = decoder_of(_Started | _Done | _Finished)


def request_of(request: RunRequest, node: str) -> bytes:
    """Return what the Job of a node is handed, of a run on several."""
    document = JobRequest(
        schema=SCHEMA,
        node=node,
        playbook=request.playbook.stem,
        variables=request.extra_vars,
        check=request.check,
        timeout_seconds=request.timeout_s or 7200,
        keep=tuple(sorted(request.keep)),
    )
    return msgspec.json.encode(document)


def encode_event(event: Event) -> bytes:
    """Return an event as JSON, without the name of the node: a Job speaks of its own."""
    document: _Started | _Done | _Finished
    if isinstance(event, TaskStarted):
        document = _Started(task=event.task, role=event.role, is_step=event.is_step)
    elif isinstance(event, TaskDone):
        document = _Done(
            task=event.task,
            outcome=event.outcome,
            role=event.role,
            message=event.message,
            tail=event.tail,
            values={key: msgspec.Raw(value) for key, value in event.values.items()},
            ignored=event.ignored,
            is_step=event.is_step,
        )
    else:
        document = _Finished(status=event.status, message=event.message)
    return msgspec.json.encode(document)


def decode_event(data: bytes, node: str, keep: frozenset[str]) -> Event:
    """Return the event that a node's Job has written, with the values that are to be kept; raises LogError."""
    try:
        found = _EVENT.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise LogError(f"an event cannot be read: {error}") from error
    if isinstance(found, _Started):
        return TaskStarted(node, found.task, found.role, found.is_step)
    if isinstance(found, _Finished):
        return RunFinished(found.status, {node: NodeStats()}, found.message)
    return TaskDone(
        node,
        found.task,
        found.outcome,
        found.role,
        found.message,
        found.tail,
        {key: bytes(value) for key, value in found.values.items() if key in keep},
        ignored=found.ignored,
        is_step=found.is_step,
    )


def spoken_of(event: Event) -> str:
    """Return what people read of an event in the log, empty for nothing.

    Names of the playbook's tasks, and how a run ended: never a word of the node, for everybody may read a log.
    """
    if isinstance(event, RunFinished):
        return f"the run ended: {event.status.value}"
    name = printable(f"{event.role} : {event.task}" if event.role else event.task)
    if isinstance(event, TaskStarted):
        return name
    return f"{name}: {event.outcome.value}" if event.outcome in _WRONG else ""


def words_in(end: str) -> str:
    """Return what is for people of the end of a log, which may begin in the middle of a line of an agent."""
    lines = [line for line in end.splitlines() if not line.startswith(f"{MARK} ")]
    return "\n".join(line for line in lines if " " in line.strip() or len(line) < _LONGEST_WORD).strip()


@dataclass(slots=True)
class LineWriter:
    """Turns events into lines. ``run`` names this start of the agent, and no other one."""

    seal: Seal
    run: str
    _start: Start = field(init=False)
    _number: int = 0

    def __post_init__(self) -> None:
        self._start = self.seal.start(self.run)

    def lines(self, event: Event) -> Iterator[str]:
        """Yield the lines of an event, each complete."""
        packed = zlib.compress(encode_event(event), 6)
        pieces = [packed[start : start + PIECE_BYTES] for start in range(0, len(packed), PIECE_BYTES)]
        for index, piece in enumerate(pieces):
            end = _END if index == len(pieces) - 1 else _MORE
            sealed = self._start.seal(self._number, end, piece)
            yield f"{MARK} {self.run} {self._number} {end} {base64.b64encode(sealed).decode()}"
            self._number += 1


@dataclass(slots=True)
class LineReader:
    """Turns lines of a log into events of its node. Lines that were read before are skipped, others are text.

    ``keep`` are the keys of results that are kept, as in the request.
    """

    node: str
    seal: Seal
    keep: frozenset[str] = frozenset()
    _start: Start | None = None
    _starts: set[str] = field(default_factory=set)
    _next: int = 0
    _bytes: int = 0
    _unpacked: int = 0
    _events: int = 0
    _pieces: list[bytes] = field(default_factory=list)

    def read(self, lines: Iterable[bytes]) -> Iterator[Event]:
        """Yield the events that are complete; raises LogError."""
        for line in lines:
            self._bytes += len(line) + 1
            if self._bytes > MAX_LOG_BYTES:
                raise LogError(f"it is longer than {MAX_LOG_BYTES} bytes")
            words = line.rstrip(b"\r\n").split(b" ")
            if len(words) == _WORDS and words[0] == MARK.encode():
                yield from self._take(*words[1:])

    def _take(self, run: bytes, number: bytes, end: bytes, text: bytes) -> Iterator[Event]:
        if not number.isdigit() or len(number) > _MAX_DIGITS:
            raise LogError("a line has no number")
        if not run.isalnum() or len(run) > _LONGEST_RUN:
            raise LogError("a line does not name the start of its agent")
        place, start = int(number), self._started(run.decode(), int(number))
        if start is self._start:
            if place < self._next:
                return
            if place > self._next:
                raise LogError(f"lines {self._next} to {place - 1} of its log are lost")
        piece = _open(start, place, end, text)
        if start is not self._start:  # which only now is known to be the agent's
            self._start, self._pieces = start, []
            self._starts.add(start.run)
        self._next = place + 1
        self._pieces.append(piece)
        if len(self._pieces) > MAX_PIECES:
            raise LogError("an event is too long")
        if end == _END.encode():
            packed, self._pieces = b"".join(self._pieces), []
            yield decode_event(self._unpack(packed), self.node, self.keep)

    def _started(self, run: str, number: int) -> Start:
        """Return the start of the agent that a line is of: the one that is read, or one after it."""
        if self._start is not None and self._start.run == run:
            return self._start
        if run in self._starts:
            raise LogError("it repeats what an agent told before it was started again")
        if number != 0:
            raise LogError("the beginning of its log is lost")
        if len(self._starts) >= MAX_STARTS:
            raise LogError(f"its agent was started more than {MAX_STARTS} times")
        return self.seal.start(run)

    def _unpack(self, packed: bytes) -> bytes:
        """Return an event, while the run has not said too much."""
        self._events += 1
        if self._events > MAX_EVENTS:
            raise LogError(f"it has more than {MAX_EVENTS} events")
        left = MAX_RUN_BYTES - self._unpacked
        try:
            data = _unpack(packed, min(MAX_EVENT_BYTES, left))
        except _TooLongError:
            if left < MAX_EVENT_BYTES:
                raise LogError(f"its events are longer than {MAX_RUN_BYTES} bytes") from None
            raise LogError(f"an event is longer than {MAX_EVENT_BYTES} bytes, or cut") from None
        self._unpacked += len(data)
        return data


class _TooLongError(Exception):
    """An event is longer than it may be, or cut."""


def _open(start: Start, number: int, end: bytes, text: bytes) -> bytes:
    if len(text) > MAX_TEXT_BYTES:
        raise LogError(f"line {number} of its log is longer than an agent's")
    try:
        return start.open(number, end.decode("ascii", "replace"), base64.b64decode(text, validate=True))
    except binascii.Error as error:
        raise LogError(f"line {number} of its log cannot be read: {error}") from error
    except SealError:
        raise LogError(
            f"line {number} of its log is not sealed by its agent: the image is of another version than the "
            "controller, or somebody else has written it"
        ) from None


def _unpack(packed: bytes, most: int) -> bytes:
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(packed, most) if most else b""
    except zlib.error as error:
        raise LogError(f"an event cannot be unpacked: {error}") from error
    if not unpacking.eof:
        raise _TooLongError
    return data
