"""The one place that starts other programs: argument lists, C locale, a time limit, a failure that can be pasted."""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import TYPE_CHECKING

from lab.machine.errors import CommandError, HostError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TAIL_LINES = 15

# A command in a PID and mount namespace of its own dies, with all its mounts, when the laboratory is killed.
CONTAINED = (
    "setpriv", "--pdeathsig", "KILL",
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
    environment = {**os.environ, "LC_ALL": "C.UTF-8", **(env or {})}
    stdin = {"input": input_text} if input_text is not None else {"stdin": subprocess.DEVNULL}
    try:
        done: subprocess.CompletedProcess[str] = subprocess.run(
            argv,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            env=environment,
            **stdin,
        )
    except FileNotFoundError as error:
        raise HostError(f"{argv[0]} is missing", hint="install the packages of lab/apt-packages.txt") from error
    except subprocess.TimeoutExpired as error:
        output = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else ""
        raise CommandError(f"{argv[0]} took longer than {timeout_s:g} s", hint=_report(argv, output)) from error
    if check and done.returncode:
        report = _report(argv, done.stdout + done.stderr)
        raise CommandError(f"{argv[0]} failed with status {done.returncode}", hint=report)
    return done


def _report(argv: Sequence[str], output: str) -> str:
    """Return the command as a shell takes it and the end of what it printed."""
    return "\n".join([f"command: {shlex.join(argv)}", *output.splitlines()[-TAIL_LINES:]])
