"""`grapnel agent`: does on its host what a Job of the controller was asked for. Not for people."""

from __future__ import annotations

import contextlib
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import provision
from provision.apply.interrupt import cancel_on_signals
from provision.apply.runner import AnsibleRunner, find_collection
from provision.base.bug import name_bug
from provision.base.errors import ExitCode, GrapnelError
from provision.cli.terminal import print_error
from provision.controller.jobs.agent import (
    CUT_OFF,
    RequestError,
    open_log,
    read_request,
    read_seal,
    refuse,
    run_request,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from provision.controller.jobs.agent import Log
    from provision.controller.jobs.wire import JobRequest

_DOING: Final = "a run on this node"


def run(args: argparse.Namespace) -> int:
    """Run what was asked for, and print its events, sealed; whatever they say, the run has been told.

    An agent that is told to end has not told the end of its run, and says so by its exit code: the Job goes on in
    another pod. One that has nothing to seal with says so to people alone, and does nothing.
    """
    collection = find_collection(Path(provision.__file__).parent)
    if collection is None:
        raise GrapnelError("this installation has no grapnel.node collection", hint="rebuild the image")
    try:
        log = open_log(read_seal(args.request.parent), _write)
    except RequestError as error:
        print_error(error)
        return ExitCode.DONE
    try:
        job = read_request(args.request)
    except RequestError as error:  # told as an end, or the pod would be started again and again for it
        refuse(error, log)
        return ExitCode.DONE
    with _bugs_named():
        try:
            return _carry_out(job, log, collection, args.host_pid)
        except (GrapnelError, BrokenPipeError):
            raise
        except Exception as error:  # noqa: BLE001 - named, where `main` would quote it
            print_error(GrapnelError(name_bug(error, _DOING)))
            return ExitCode.BUG


def _carry_out(job: JobRequest, log: Log, collection: Path, host_pid: int) -> int:
    with cancel_on_signals() as cancel:
        is_told = run_request(job, AnsibleRunner(collection), collection, log, cancel, host_pid=host_pid)
    return ExitCode.DONE if is_told else CUT_OFF


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@contextlib.contextmanager
def _bugs_named() -> Iterator[None]:
    """Have bugs of threads named and not quoted: they may quote a file of the node, and many may read a log."""
    former = threading.excepthook

    def name(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            print_error(GrapnelError(name_bug(args.exc_value, _DOING)))

    threading.excepthook = name
    try:
        yield
    finally:
        threading.excepthook = former
