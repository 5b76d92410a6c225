"""What can go wrong in the controller, and the exit code that tells a script which kind it was.

    GrapnelError            1   an expected failure: a message, and a hint that helps
    └── UsageError          2   the command line is wrong

A part with failures of its own derives them from `GrapnelError` in its own `errors.py`. Anything else that
reaches the command line is a bug (70). Messages are lower-case, have no full stop, and name the path, node or
key.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """What the process tells its caller."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    CHANGES = 3  # of `plan --exit-code` and `drift`, as GNU diff's 1 is taken by failures
    BUG = 70  # EX_SOFTWARE of sysexits.h
    INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it


class GrapnelError(Exception):
    """An expected failure: what happened, and what the reader can do about it."""

    exit_code: ClassVar[ExitCode] = ExitCode.FAILED

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(GrapnelError):
    """The command line is wrong."""

    exit_code = ExitCode.USAGE


def os_reason(error: OSError) -> str:
    """Return what the system says of an error, in small letters."""
    return (error.strerror or str(error)).lower()
