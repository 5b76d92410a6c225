"""Runs other programs: argument lists, C locale, a time limit, and failures that can be pasted into a shell."""

from __future__ import annotations

import os
import shlex
import subprocess
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from lab.machine.errors import CommandError, HostError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

TAIL_LINES = 15

# Keeps a command from outliving the lab when that is killed: the signal only reaches the command itself, but for
# root its own PID and mount namespaces take its children and mounts along.
DYING = ("setpriv", "--pdeathsig", "KILL")
CONTAINED = (
    *DYING,
    "unshare", "--mount", "--propagation", "slave", "--pid", "--fork", "--kill-child", "--mount-proc",
)  # fmt: skip


def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    check: bool = True,
    env: Mapping[str, str] | None = None,
    input_text: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end with its output captured; ``CommandError`` unless it succeeds in time."""
    stdin = {"input": input_text} if input_text is not None else {"stdin": subprocess.DEVNULL}
    try:
        done: subprocess.CompletedProcess[str] = subprocess.run(
            argv,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            env=_environment(env),
            **stdin,
        )
    except FileNotFoundError as error:
        raise _missing(argv) from error
    except subprocess.TimeoutExpired as error:
        output = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else ""
        raise CommandError(f"{argv[0]} took longer than {timeout_s:g} s", hint=_report(argv, output)) from error
    if check and done.returncode:
        report = _report(argv, done.stdout + done.stderr)
        raise CommandError(f"{argv[0]} failed with status {done.returncode}", hint=report)
    return done


def follow(
    argv: Sequence[str],
    on_line: Callable[[str], None],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> None:
    """Run a long command and pass on each line that it prints; ``CommandError`` unless it succeeds in time.

    The command dies with its children when this process is killed.
    """
    begun = time.monotonic()
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    try:
        child = subprocess.Popen(
            [*(CONTAINED if os.geteuid() == 0 else DYING), *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=_environment(env),
            cwd=cwd,
        )
    except FileNotFoundError as error:
        raise _missing(DYING) from error
    alarm = threading.Timer(timeout_s, child.kill)
    alarm.start()
    with child:
        try:
            for line in child.stdout or ():
                tail.append(line.rstrip("\n"))
                on_line(tail[-1])
            status = child.wait()
        finally:
            alarm.cancel()
            child.kill()
    if status:
        is_late = time.monotonic() - begun >= timeout_s
        what = f"took longer than {timeout_s:g} s" if is_late else f"failed with status {status}"
        raise CommandError(f"{argv[0]} {what}", hint=_report(argv, "\n".join(tail)))


def _environment(added: Mapping[str, str] | None) -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C.UTF-8", **(added or {})}


def _missing(argv: Sequence[str]) -> HostError:
    return HostError(f"{argv[0]} is missing", hint="install the packages of lab/apt-packages.txt")


def _report(argv: Sequence[str], output: str) -> str:
    """Return the command as a shell line, and the end of its output."""
    return "\n".join([f"command: {shlex.join(argv)}", *output.splitlines()[-TAIL_LINES:]])
