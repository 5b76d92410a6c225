"""`grapnel agent`: does on its host what a Job of the controller was asked for. Not for people."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import provision
from provision.errors import ExitCode, GrapnelError

if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--request", type=Path, required=True, metavar="FILE", help="what to do: docs/contracts/node-job"
    )
    parser.add_argument(
        "--host-pid", type=int, default=1, metavar="PID", help="a process of the host, as seen from here (default: 1)"
    )


def run(args: argparse.Namespace) -> int:
    """Run what was asked for, and print its events; whatever they say, the run has been told."""
    from provision.apply.interrupt import cancel_on_signals  # noqa: PLC0415 - start-up time
    from provision.jobs.agent import RequestError, read_request, refuse, run_request  # noqa: PLC0415 - start-up time
    from provision.runner import AnsibleRunner, find_collection  # noqa: PLC0415 - start-up time

    collection = find_collection(Path(provision.__file__).parent)
    if collection is None:
        raise GrapnelError("this installation has no grapnel.node collection", hint="rebuild the image")

    def write(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    try:
        job = read_request(args.request)
    except RequestError as error:  # told as an end, or the pod would be started again and again for it
        refuse(error, write)
        return ExitCode.DONE
    with cancel_on_signals() as cancel:
        run_request(job, AnsibleRunner(collection), collection, write, cancel, host_pid=args.host_pid)
    return ExitCode.DONE
