"""The folders of a control daemon: only root writes in them, and nothing stays in them that anybody else has put there.

NVIDIA's program opens its names in them as root, follows links and writes to what it finds. Servers and clients run as
other users; they make nothing there (drivers 535 and 550): they write to the pipe `log` and connect to sockets.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.base.errors import MpsError, os_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plugin.sharing.mps.plan import MpsDaemon

_THROUGH, _PIPE, _LOG, _SHM = 0o711, 0o755, 0o700, 0o755
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def prepare_folders(daemon: MpsDaemon) -> None:
    """Make the folders, and leave nothing but older logs in them; raises MpsError. Only while nothing runs in them.

    No other user can write in `pipe` before it is emptied, so that nothing is there when the control daemon starts.
    """
    with _said():
        _check_way(daemon.folder.parent)
        _make(daemon.folder, _THROUGH)
        _make(daemon.pipe, _PIPE)
        _make(daemon.log, _LOG)
        if not daemon.shm.is_mount():
            _make(daemon.shm, _SHM)
        _clear(daemon, daemon.pipe, keeps=lambda _: False)
        _clear(daemon, daemon.log, keeps=_is_own_file)


def keep_own(daemon: MpsDaemon) -> None:
    """Take away what others have put beside a control daemon that runs; raises MpsError.

    An earlier version let everybody write in these folders, and its control daemons run on. What is missing is no
    matter here: there is nobody to ask then.
    """
    with _said(), suppress(FileNotFoundError):
        _tighten(daemon.pipe, _PIPE)
        _clear(daemon, daemon.pipe, keeps=_is_own)
        _close_files(daemon.pipe)
        _tighten(daemon.log, _LOG)
        _clear(daemon, daemon.log, keeps=_is_own)


@contextmanager
def _said() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MpsError(f"{error.filename}: {os_reason(error)}") from error


def _check_way(path: Path) -> None:
    """Make the folders above; none of them may be another user's, or let others put something else in its place."""
    for place in reversed((path, *path.parents)):
        with suppress(FileExistsError):
            place.mkdir(mode=_THROUGH)
            place.chmod(_THROUGH)
        found = place.lstat()
        if found.st_uid not in {0, os.geteuid()}:
            raise _foreign(place, found.st_uid)
        if stat.S_ISLNK(found.st_mode):
            place.stat()  # raises for links that lead in a circle
            _check_way(Path(os.path.normpath(place.parent / place.readlink())))
        elif found.st_mode & _OTHERS_WRITE and not found.st_mode & stat.S_ISVTX:
            raise MpsError(f"others than root can write in {place}", f"chmod go-w {place}, or choose another mpsRoot")


def _foreign(path: Path, user: int) -> MpsError:
    return MpsError(f"{path} belongs to user {user}", "find out who made it, and remove it")


def _make(path: Path, mode: int) -> None:
    with suppress(FileExistsError):
        path.mkdir(mode=stat.S_IRWXU)
    _tighten(path, mode)


def _tighten(path: Path, mode: int) -> None:
    with _opened(path) as folder:
        if stat.S_IMODE(os.fstat(folder).st_mode) != mode:
            os.fchmod(folder, mode)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Open a folder of ours, and no link to another one; raises MpsError, OSError."""
    descriptor = os.open(path, _FOLDER)
    try:
        user = os.fstat(descriptor).st_uid
        if user != os.geteuid():
            raise _foreign(path, user)
        yield descriptor
    finally:
        os.close(descriptor)


def _is_own(found: os.stat_result) -> bool:
    """Whether it can only be ours. A file with a second name may be one that another user wants us to write to."""
    is_shared = stat.S_ISREG(found.st_mode) and found.st_nlink != 1
    return found.st_uid == os.geteuid() and not stat.S_ISLNK(found.st_mode) and not is_shared


def _is_own_file(found: os.stat_result) -> bool:
    return _is_own(found) and stat.S_ISREG(found.st_mode)


def _clear(daemon: MpsDaemon, path: Path, *, keeps: Callable[[os.stat_result], bool]) -> None:
    with _opened(path) as folder:
        for name, found in _entries(folder):
            if keeps(found):
                continue
            with suppress(FileNotFoundError):  # a control daemon that ends takes its own away
                if stat.S_ISDIR(found.st_mode):  # however much is in it: it is out of the way
                    os.rename(name, daemon.folder / f"foreign-{found.st_ino}", src_dir_fd=folder)
                else:
                    os.unlink(name, dir_fd=folder)


def _entries(folder: int) -> list[tuple[str, os.stat_result]]:
    """Return what is in an open folder, and of links what they are themselves."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                found.append((entry.name, entry.stat(follow_symlinks=False)))
    return found


def _close_files(path: Path) -> None:
    """Keep others from writing to its files: the program makes them for everybody, and needs them for itself alone."""
    with _opened(path) as folder:
        for name, found in _entries(folder):
            if _is_own_file(found) and found.st_mode & _OTHERS_WRITE:
                with suppress(FileNotFoundError):
                    _close_file(os.open(name, _FILE, dir_fd=folder))


def _close_file(descriptor: int) -> None:
    try:
        os.fchmod(descriptor, stat.S_IMODE(os.fstat(descriptor).st_mode) & ~_OTHERS_WRITE)
    finally:
        os.close(descriptor)


MAX_BYTES = 4 * 1024 * 1024
_NAMES = ("control.log", "server.log")


def trim_logs(daemon: MpsDaemon) -> None:
    """Empty a log that has become too large. Who writes it goes on: nothing is moved or made.

    No link is followed, and a file of another user is left: an earlier version let every user write in the folder.
    """
    for name in _NAMES:
        with suppress(OSError):
            _trim(str(daemon.log / name))


def _trim(path: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        is_own = stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_uid == os.geteuid()
        if is_own and found.st_size > MAX_BYTES:
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)
