"""Encodes what goes to a Job and what comes back as lines of its pod's log (docs/contracts/node-job). Pure.

A log is text, in lines that may be cut, repeated after a broken connection, and lost when it is rotated; and whoever
has root on the node may write what they like into it. So each event is compressed and goes into short numbered lines,
what does not continue the last one is found, and all sizes are bounded. A restarted container begins at line 0 again.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping  # noqa: TC003 - msgspec resolves the annotations
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from provision.decoding import decoder_of
from provision.runner import NodeStats, Outcome, RunFinished, RunStatus, TaskDone, TaskStarted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from provision.runner import Event, RunRequest

SCHEMA: Final = "grapnel.dev/node-job/v1alpha1"
MARK: Final = "grapnel-run"
PIECE_BYTES: Final = 6144  # of an event in one line: kubelets and runtimes cut lines at 16 KiB
MAX_EVENT_BYTES: Final = 16 << 20
MAX_PIECES: Final = 4096
MAX_LINE_BYTES: Final = 64 << 10  # of a log; the agent's own are shorter
MAX_LOG_BYTES: Final = 1 << 30  # of a run, what is read again after a broken connection included
MAX_STARTS: Final = 64  # of the agent in one run: a Job restarts it less often
_Name = Annotated[str, msgspec.Meta(max_length=4096)]
_Text = Annotated[str, msgspec.Meta(max_length=64 * 1024)]


class LogError(Exception):
    """A log does not hold what the agent writes: lines are missing, or somebody else has written them."""


class JobRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What a Job is to do: a playbook of the collection, by name, on the node that it is on."""

    schema: Literal["grapnel.dev/node-job/v1alpha1"]
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
    outcome: Outcome
    role: _Name = ""
    message: _Text = ""
    tail: Annotated[tuple[_Text, ...], msgspec.Meta(max_length=64)] = ()
    values: dict[str, msgspec.Raw] = {}
    ignored: bool = False
    is_step: bool = True


class _Finished(msgspec.Struct, frozen=True, kw_only=True, tag="finished", rename="camel"):
    status: RunStatus
    message: _Text = ""


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


def decode_event(data: bytes, node: str) -> Event:
    """Return the event that a node's Job has written; raises LogError."""
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
        {key: bytes(value) for key, value in found.values.items()},
        ignored=found.ignored,
        is_step=found.is_step,
    )


@dataclass(slots=True)
class LineWriter:
    """Turns events into lines. ``run`` names this start of the agent: a container that is restarted has another one."""

    run: str
    _number: int = 0

    def lines(self, event: Event) -> Iterator[str]:
        """Yield the lines of an event, each complete."""
        packed = zlib.compress(encode_event(event), 6)
        pieces = [packed[start : start + PIECE_BYTES] for start in range(0, len(packed), PIECE_BYTES)]
        for index, piece in enumerate(pieces):
            end = "." if index == len(pieces) - 1 else "+"
            yield f"{MARK} {self.run} {self._number} {end} {base64.b64encode(piece).decode()}"
            self._number += 1


@dataclass(slots=True)
class LineReader:
    """Turns lines of a log into events of its node. Lines that were read before are skipped, others are text."""

    node: str
    run: str = ""
    _next: int = 0
    _starts: int = 0
    _bytes: int = 0
    _pieces: list[bytes] = field(default_factory=list)

    def read(self, lines: Iterable[bytes]) -> Iterator[Event]:
        """Yield the events that are complete; raises LogError."""
        for line in lines:
            self._bytes += len(line) + 1
            if self._bytes > MAX_LOG_BYTES:
                raise LogError(f"it is longer than {MAX_LOG_BYTES} bytes")
            words = line.rstrip(b"\r\n").split(b" ")
            if len(words) == 5 and words[0] == MARK.encode():  # noqa: PLR2004 - the words of a line
                yield from self._take(*words[1:])

    def _take(self, run: bytes, number: bytes, end: bytes, text: bytes) -> Iterator[Event]:
        name = run.decode("ascii", "replace")[:64]
        if not number.isdigit() or len(number) > 9:  # noqa: PLR2004 - digits
            raise LogError("a line has no number")
        if name != self.run:
            if int(number) != 0:
                raise LogError("the beginning of its log is lost")
            self._starts += 1
            if self._starts > MAX_STARTS:
                raise LogError(f"its agent was started more than {MAX_STARTS} times")
            self.run, self._next, self._pieces = name, 0, []
        if int(number) < self._next:
            return
        if int(number) > self._next:
            raise LogError(f"lines {self._next} to {int(number) - 1} of its log are lost")
        self._next += 1
        try:
            self._pieces.append(base64.b64decode(text, validate=True))
        except binascii.Error as error:
            raise LogError(f"line {int(number)} of its log cannot be read: {error}") from error
        if len(self._pieces) > MAX_PIECES:
            raise LogError("an event is too long")
        if end == b".":
            packed, self._pieces = b"".join(self._pieces), []
            yield decode_event(_unpack(packed), self.node)


def _unpack(packed: bytes) -> bytes:
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(packed, MAX_EVENT_BYTES)
    except zlib.error as error:
        raise LogError(f"an event cannot be unpacked: {error}") from error
    if not unpacking.eof:
        raise LogError(f"an event is longer than {MAX_EVENT_BYTES} bytes, or cut")
    return data
