"""Edits what loaders search besides their cache: musl's path file, a file of ``ld.so.conf.d``."""

from __future__ import annotations

import errno
import stat

from runtime_hook.base.values import value
from runtime_hook.container.operations.operation import ensure_folder, name_taken

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.container.syscalls import Syscalls

CONF_FOLDER = "/etc/ld.so.conf.d"
# Before all others of the folder, as NVIDIA's 00-compat-*.conf; one name, so that restarts replace it.
CONF_NAME = "00-grapnel-compat.conf"
_LIMIT_BYTES = 1 << 12


@value
class ListMuslFolder:
    """Let musl search a folder: nothing to do where it does, by its path file or without one."""

    folder: str
    machine: str
    is_mandatory: bool = False

    def describe(self) -> str:
        """Say what will be done, in one line."""
        return f"list {self.folder} in /etc/ld-musl-{self.machine}.path where it is not searched"

    def stage(self, syscalls: Syscalls) -> None:
        """Need nothing of the host."""

    def apply(self, syscalls: Syscalls) -> str:
        """Write the path file in one step."""
        folder, name = ensure_folder(syscalls, "/etc"), f"ld-musl-{self.machine}.path"
        data = add_folder(_content(syscalls, folder, name, PATH_LIMIT_BYTES), self.folder)
        if data is not None:
            syscalls.put_file(folder, name, data)
        return ""


@value
class ListCompatFolder:
    """Let an ``ldconfig`` that is run in the container come to our order; emptied when that is the driver's again."""

    compat_folder: str
    is_used: bool
    reason: str
    is_mandatory: bool = False

    def describe(self) -> str:
        """Say what will be done, in one line."""
        place = "before" if self.is_used else "not before"
        return f"take libraries of {self.compat_folder} {place} the driver's ({self.reason})"

    def stage(self, syscalls: Syscalls) -> None:
        """Need nothing of the host."""

    def apply(self, syscalls: Syscalls) -> str:
        """Write the file where the image has the folder, and where it differs; an image without it reads none."""
        note = f"CUDA forward compatibility: {self.reason}" if self.is_used else ""
        try:
            folder = syscalls.open_folder(CONF_FOLDER)
        except FileNotFoundError:
            return note
        old = _content(syscalls, folder, CONF_NAME, _LIMIT_BYTES)
        new = f"{self.compat_folder}\n".encode() if self.is_used else b""
        if old != new and (self.is_used or old is not None):
            syscalls.put_file(folder, CONF_NAME, new)
        return note


def _content(syscalls: Syscalls, folder: int, name: str, limit_bytes: int) -> bytes | None:
    """Return a file's content, None where there is no such name."""
    status = syscalls.lstat(folder, name)
    if status is None:
        return None
    if not stat.S_ISREG(status.mode):
        raise name_taken(status.mode)
    data = syscalls.read_file(folder, name, limit_bytes)
    if data is None:
        raise OSError(errno.EFBIG, f"larger than {limit_bytes >> 10} KiB")
    return data


# Edits musl's library path (``/etc/ld-musl-<arch>.path``), which it has in place of a loader cache. musl reads the
# file's folders, divided by colons or line ends, up to its end or a NUL; without the file it searches
# ``/lib:/usr/local/lib:/usr/lib`` (musl, ``ldso/dynlink.c``).

DEFAULT_PATH = b"/lib:/usr/local/lib:/usr/lib"
PATH_LIMIT_BYTES = 1 << 16


def add_folder(data: bytes | None, folder: str) -> bytes | None:
    """Return the path file with a folder added at its end, or None where the folder is searched already.

    ``data`` is the image's file, None where it has none. What the image lists stays as it is.
    """
    wanted = folder.encode()
    listed = (DEFAULT_PATH if data is None else data).partition(b"\0")[0]
    if wanted in (path.rstrip(b"/") for path in listed.replace(b"\n", b":").split(b":")):
        return None
    separator = b"" if not listed or listed.endswith((b":", b"\n")) else b"\n"
    return listed + separator + wanted + b"\n"
