"""The history as a file in the state folder: a log that is appended to, and rewritten before it grows too long.

One writer, the daemon.
"""

from __future__ import annotations

import errno
import os
import time
from itertools import chain
from typing import TYPE_CHECKING

from plugin.base.errors import HistoryError, os_reason
from plugin.holdings.history.record import MAX_BYTES, parse_history, render_events, render_start
from plugin.system.durable import read_bounded, replace_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from plugin.holdings.history.model import Event

HISTORY_FILE = "history.jsonl"
_DAMAGED = ".damaged"


def read_history(folder: Path) -> list[Event]:
    """Return what happened, in the order of the log; nothing where there is no file. Raises HistoryError."""
    path = folder / HISTORY_FILE
    try:
        return parse_history(read_bounded(path, MAX_BYTES + 1))
    except FileNotFoundError:
        return []
    except OSError as error:
        reason = os_reason(error)
        raise HistoryError(f"{path} cannot be read: {reason}", "are you root?") from error
    except ValueError as error:
        hint = "the daemon sets it aside when it starts, and begins another one"
        raise HistoryError(f"{path} cannot be understood: {error}", hint) from error


def set_damaged_aside(folder: Path) -> None:
    """Set a file that cannot be understood aside, for an administrator; raises OSError."""
    path = folder / HISTORY_FILE
    path.replace(path.with_name(HISTORY_FILE + _DAMAGED))


def write_history(folder: Path, events: Iterable[Event]) -> int:
    """Replace the file and return its length; on an OSError it is as it was."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lines = _Counted(chain([render_start()], render_events(events)))
    replace_file(folder / HISTORY_FILE, lines)
    return lines.length


def append_history(folder: Path, events: Iterable[Event], length: int) -> int:
    """Put events at the end of a file of this length, on the disk, and return its new length.

    After an OSError the file has to be rewritten: it may end in half a line, or be another one than it was.
    """
    path, lines = folder / HISTORY_FILE, _Counted(render_events(events))
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe is not waited for
    with open(descriptor, "a", encoding="ascii") as file:
        if os.fstat(descriptor).st_size != length:
            raise OSError(errno.ESTALE, "somebody else wrote to it", str(path))
        file.writelines(lines)
        file.flush()
        os.fdatasync(descriptor)
    return length + lines.length


class _Counted:
    """Lines on their way to the disk, one at a time: together they are big, and take time that kubelets wait for."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = lines
        self.length = 0

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self.length += len(line)
            yield line
            time.sleep(0)  # another thread that waits for the interpreter has it now instead of in 5 ms
