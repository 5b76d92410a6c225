"""Runs a program of the node within limits of time and size: argument list, explicit environment, no input."""

from __future__ import annotations

import shlex
import subprocess
import threading

from plugin.base.errors import DriftError

_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
_TIMEOUT_S = 30.0
_MAX_ANSWER = 1 << 20


def ask(command: tuple[str, ...]) -> str:
    """Return what a program prints, whatever it ends with; raises DriftError where it cannot be asked.

    Package managers end with an error where one of the packages is not there, which is an answer.
    """
    try:
        with subprocess.Popen(
            command,
            env=_ENVIRONMENT,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            late = threading.Event()
            limit = threading.Timer(_TIMEOUT_S, _end, (process, late))
            limit.daemon = True
            limit.start()
            try:
                answer = process.stdout.read(_MAX_ANSWER + 1) if process.stdout else b""
            finally:
                limit.cancel()
                if len(answer) > _MAX_ANSWER:
                    process.kill()
    except OSError as error:
        raise DriftError(f"{command[0]} cannot be started: {(error.strerror or str(error)).lower()}") from error
    pasted = shlex.join(command[:3])
    if late.is_set():
        raise DriftError(f"{pasted} …: no answer within {_TIMEOUT_S:g} s")
    if len(answer) > _MAX_ANSWER:
        raise DriftError(f"{pasted} …: an answer of more than {_MAX_ANSWER >> 20} MiB")
    return answer.decode("utf-8", "replace")


def _end(process: subprocess.Popen[bytes], late: threading.Event) -> None:
    late.set()
    process.kill()
