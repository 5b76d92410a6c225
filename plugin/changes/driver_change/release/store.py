"""The remembered release as a file: `released.json` in the state folder says that no GPU of this node is offered.

The file is the truth. Whoever changes it tells the running daemon afterwards, and a daemon that starts
reads it first, so that a kill, a crash or a reboot at any point leaves the node released. A file that
cannot be understood counts as a release too.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.base.errors import ReleaseError, os_reason
from plugin.changes.driver_change.release.record import MAX_BYTES, Release, parse_release, render_release
from plugin.system.durable import flush_folder, read_bounded, replace_file
from plugin.system.sole import lock_now

if TYPE_CHECKING:
    from collections.abc import Iterator

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # another one after each boot, by which a release may be judged
FILE_NAME = "released.json"
_LOCK_POLL_S = 0.05


def read_release(folder: Path) -> Release | None:
    """Return the release that is remembered, None without one. A file that cannot be read is one with a problem."""
    path = folder / FILE_NAME
    try:
        return parse_release(read_bounded(path, MAX_BYTES + 1))
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = os_reason(error)
    except (ValueError, RecursionError) as error:
        reason = str(error)
    return Release("", problem=f"{path} cannot be understood: {reason}")


def write_release(folder: Path, release: Release) -> None:
    """Put the file in place in one step and on the disk; on an error (ReleaseError) it is as it was before."""
    path = folder / FILE_NAME
    try:
        replace_file(path, render_release(release))
    except OSError as error:
        raise ReleaseError(
            f"{path} cannot be written: {os_reason(error)}",
            "nothing was released; you must be root, and the disk must be writable and have space",
        ) from error


def forget_release(folder: Path) -> bool:
    """Remove the file, whatever is in it; returns whether there was one. Raises ReleaseError."""
    path = folder / FILE_NAME
    try:
        path.unlink()
        flush_folder(folder)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ReleaseError(f"{path} cannot be removed: {os_reason(error)}", "the node stays released") from error
    return True


@contextmanager
def sole_change(folder: Path, timeout_s: float) -> Iterator[None]:
    """Keep other processes from changing the release; makes the folder (root's alone). Raises ReleaseError.

    The lock is the kernel's, on the folder: it ends with the process that holds it.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ReleaseError(
            f"{folder} cannot be used: {os_reason(error)}",
            "nothing was changed; you must be root",
        ) from error
    try:
        deadline = time.monotonic() + timeout_s
        while not lock_now(descriptor):
            if time.monotonic() > deadline:
                raise ReleaseError(
                    f"{folder}: another release, resume or change of mig layouts is under way",
                    "nothing was changed; try again when it has ended",
                )
            time.sleep(_LOCK_POLL_S)
        yield
    finally:
        os.close(descriptor)
