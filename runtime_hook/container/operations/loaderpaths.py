"""Edits what loaders search besides their cache: musl's path file, a file of ``ld.so.conf.d``."""

from __future__ import annotations

import errno
import stat

from runtime_hook.base.values import value
from runtime_hook.container.operations.operation import ensure_folder, name_taken
from runtime_hook.loader.muslpath import PATH_LIMIT_BYTES, add_folder

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
