"""Does on its own host what a Job was asked for, and tells it in lines of its log: `grapnel agent`."""

from __future__ import annotations

import gzip
import uuid
import zlib
from typing import TYPE_CHECKING, Final

import msgspec

from provision.decoding import decoder_of
from provision.errors import GrapnelError
from provision.jobs.wire import JobRequest, LineWriter
from provision.regular_file import read_regular
from provision.runner import RunFinished, RunRequest, RunStatus

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from pathlib import Path

    from provision.apply.model import PlaybookRunner

MAX_REQUEST_BYTES: Final = 1 << 20  # a Secret holds no more
MAX_DOCUMENT_BYTES: Final = 32 << 20
CONNECTION: Final = "grapnel.node.host"


class RequestError(GrapnelError):
    """A Job was not asked for anything that it can do."""


def read_request(path: Path) -> JobRequest:
    """Return what a Job was handed; raises RequestError."""
    try:
        data = gzip.decompress(read_regular(path, MAX_REQUEST_BYTES))
        if len(data) > MAX_DOCUMENT_BYTES:
            raise RequestError(f"{path} is longer than {MAX_DOCUMENT_BYTES} bytes")
        return decoder_of(JobRequest).decode(data)
    except (OSError, EOFError, zlib.error) as error:
        raise RequestError(f"{path} cannot be read: {error}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"{path} is no request: {error}", hint="the image belongs to another controller") from error


def refuse(error: GrapnelError, write: Callable[[str], None]) -> None:
    """Write that nothing was done, and why, as the end of a run."""
    hint = f" ({error.hint})" if error.hint else ""
    for line in LineWriter(uuid.uuid4().hex).lines(RunFinished(RunStatus.ERROR, message=f"{error.message}{hint}")):
        write(line)


def run_request(  # noqa: PLR0913 - what a run needs
    job: JobRequest,
    runner: PlaybookRunner,
    collection: Path,
    write: Callable[[str], None],
    cancel: threading.Event,
    *,
    host_pid: int = 1,
) -> None:
    """Run a playbook on the host and write every event; the last one is always written.

    ``host_pid`` is a process of the host, as this container sees it.
    """
    writer = LineWriter(uuid.uuid4().hex)
    playbook = collection / f"{job.playbook}.yml"
    if not playbook.is_file():
        message = f"this image has no playbook {job.playbook}: it belongs to another controller"
        for line in writer.lines(RunFinished(RunStatus.ERROR, message=message)):
            write(line)
        return
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
        for line in writer.lines(event):
            write(line)
