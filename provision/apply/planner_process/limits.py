"""Limits what one plan may cost, by the kernel's resource limits.

An ordinary node is planned in 10 ms and 20 MB. Files of 256 KiB full of tables, as TOML in pure Python reads them, can
make a minute and a gigabyte of that.
"""

from __future__ import annotations

import contextlib
import math
import resource
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec

from provision.apply.errors import LimitError

if TYPE_CHECKING:
    from collections.abc import Iterator

_MIB: Final = 1 << 20
_QUESTION: Final = "are its files or package lists unusually large?"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What planning one node may take; ``wall_s`` is for a machine that is busy with other things."""

    cpu_s: int = 10
    wall_s: float = 60.0
    memory_bytes: int = 512 * _MIB
    answer_bytes: int = 8 * _MIB

    def too_slow(self, doing: str) -> LimitError:
        """Return the error about time on the clock."""
        return LimitError(f"{doing} took more than {self.wall_s:g} s: {_QUESTION}")

    def too_busy(self, doing: str) -> LimitError:
        """Return the error about time of the processor."""
        return LimitError(f"{doing} took more than {self.cpu_s} s of CPU: {_QUESTION}")

    def too_big(self, doing: str) -> LimitError:
        """Return the error about memory."""
        return LimitError(f"{doing} took more than {self.memory_bytes // _MIB} MiB of memory: {_QUESTION}")

    def too_long(self, doing: str) -> LimitError:
        """Return the error about the size of what came out."""
        return LimitError(f"{doing} returned a plan of more than {self.answer_bytes // _MIB} MiB: {_QUESTION}")


DEFAULT: Final = Limits()


class _TimeIsUp(BaseException):
    """Not an Exception, as parsers turn those into errors of their own and go on."""


@contextlib.contextmanager
def limit_this_process(doing: str, limits: Limits = DEFAULT) -> Iterator[None]:
    """Raise `LimitError` when what is done inside takes too much CPU time or memory; ``doing``: "planning n1".

    For a process that does nothing else meanwhile, on its main thread: it is the process that is measured, and a signal
    (SIGXCPU) tells that time is up. Afterwards the former limits are back. What was going on is cut off anywhere, so
    nothing belongs inside that has to be finished. Ansible's forked worker may call it around a plan.
    """

    def interrupt(_number: int, _frame: object) -> NoReturn:  # again after each further second, should it get lost
        raise _TimeIsUp

    former = signal.signal(signal.SIGXCPU, interrupt)
    used = resource.getrusage(resource.RUSAGE_SELF)
    spent_s = math.ceil(used.ru_utime + used.ru_stime)
    try:
        with (
            _soft_limit(resource.RLIMIT_CPU, spent_s + limits.cpu_s),
            _soft_limit(resource.RLIMIT_DATA, _data_bytes() + limits.memory_bytes),
        ):
            yield
    except _TimeIsUp:
        raise limits.too_busy(doing) from None
    except (MemoryError, SystemError):  # without memory the interpreter may fail to say what is wrong
        raise limits.too_big(doing) from None
    finally:
        signal.signal(signal.SIGXCPU, former)


@contextlib.contextmanager
def _soft_limit(kind: int, wanted: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(kind)
    most = min((each for each in (wanted, soft, hard) if each != resource.RLIM_INFINITY), default=wanted)
    resource.setrlimit(kind, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


def _data_bytes() -> int:
    """Return what RLIMIT_DATA counts of this process already (proc_pid_status(5), VmData)."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    return 0
