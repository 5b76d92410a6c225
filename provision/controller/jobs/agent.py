"""Does on its own host what a Job was asked for, and tells it in lines of its log: `grapnel agent`."""

from __future__ import annotations

import gzip
import io
import uuid
import zlib
from collections.abc import Callable  # noqa: TC003 - dataclasses resolve it
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from provision.apply.runner import CutOff, RunFinished, RunRequest, RunStatus
from provision.base.decoding import decoder_of
from provision.base.errors import GrapnelError
from provision.base.regular_file import read_regular
from provision.controller.jobs.seal import JOB_UID, KEY_BYTES, SEAL_KEY, Seal
from provision.controller.jobs.wire import JobRequest, LineWriter, spoken_of

if TYPE_CHECKING:
    import threading
    from pathlib import Path

    from provision.apply.model import PlaybookRunner
    from provision.controller.jobs.wire import Event

MAX_REQUEST_BYTES: Final = 1 << 20  # a Secret holds no more
MAX_DOCUMENT_BYTES: Final = 32 << 20
MAX_UID_BYTES: Final = 128
CONNECTION: Final = "grapnel.node.host"
_ANOTHER: Final = "the image belongs to another controller"
CUT_OFF: Final = 143  # the exit code of an agent that was told to end: a Job whose pod ends with 0 makes no other one


class RequestError(GrapnelError):
    """A Job was not asked for anything that it can do."""


def read_request(path: Path) -> JobRequest:
    """Return what a Job was handed; raises RequestError."""
    try:
        packed = read_regular(path, MAX_REQUEST_BYTES)
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as unpacking:
            data = unpacking.read(MAX_DOCUMENT_BYTES + 1)  # no more, whatever it would unpack to
        if len(data) > MAX_DOCUMENT_BYTES:
            raise RequestError(f"{path} is longer than {MAX_DOCUMENT_BYTES} bytes")
        return decoder_of(JobRequest).decode(data)
    except (OSError, EOFError, zlib.error) as error:
        raise RequestError(f"{path} cannot be read: {error}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"{path} is no request: {error}", hint=_ANOTHER) from error


def read_seal(folder: Path) -> Seal:
    """Return what to seal with, which lies beside a request; raises RequestError."""
    try:
        key = read_regular(folder / SEAL_KEY, KEY_BYTES)
        job = read_regular(folder / JOB_UID, MAX_UID_BYTES).decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"there is nothing to seal with: {error}", hint=_ANOTHER) from None
    if len(key) != KEY_BYTES or not job:
        raise RequestError("there is nothing to seal with: a key or its Job is cut", hint=_ANOTHER)
    return Seal(key, job)


@dataclass(frozen=True, slots=True)
class Log:
    """Where an agent tells what it does: to people what everybody may read, to its controller the rest, sealed."""

    write: Callable[[str], None]
    writer: LineWriter

    def tell(self, event: Event) -> None:
        """Write an event."""
        if words := spoken_of(event):
            self.write(words)
        for line in self.writer.lines(event):
            self.write(line)


def open_log(seal: Seal, write: Callable[[str], None]) -> Log:
    """Return the log of one start of the agent."""
    return Log(write, LineWriter(seal, uuid.uuid4().hex))


def refuse(error: GrapnelError, log: Log) -> None:
    """Write that nothing was done, and why, as the end of a run."""
    hint = f" ({error.hint})" if error.hint else ""
    log.tell(RunFinished(RunStatus.ERROR, message=f"{error.message}{hint}"))


def run_request(
    job: JobRequest,
    runner: PlaybookRunner,
    collection: Path,
    log: Log,
    cancel: threading.Event,
    *,
    host_pid: int = 1,
) -> bool:
    """Run a playbook on the host and write every event; return whether the end of the run was written.

    It is not where ``cancel`` has ended it: whoever ended this agent did not ask what runs on the node to end, and
    could not, so that its end has yet to come. ``host_pid`` is a process of the host, as this container sees it.
    """
    playbook = collection / f"{job.playbook}.yml"
    if not playbook.is_file():
        message = f"this image has no playbook {job.playbook}: it belongs to another controller"
        log.tell(RunFinished(RunStatus.ERROR, message=message))
        return True
    request = RunRequest(
        playbook=playbook,
        inventory=(f"{job.node},",),
        nodes=(job.node,),
        extra_vars={
            **job.variables,
            "ansible_connection": CONNECTION,
            "ansible_grapnel_host_pid": host_pid,
            "ansible_user": "root",
            "ansible_become": False,  # it is root already
            "ansible_remote_tmp": "/root/.ansible/tmp",
        },
        forks=1,
        check=job.check,
        timeout_s=job.timeout_seconds,
        keep=frozenset(job.keep),
    )
    for event in runner.run(request, cancel):
        if isinstance(event, CutOff):
            continue
        if isinstance(event, RunFinished) and event.status is RunStatus.CANCELED:
            return False
        log.tell(event)
    return True
