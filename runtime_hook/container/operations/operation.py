"""Defines the interface of an operation, and what several of them share.

``stage`` happens on the host's side before anything is changed, ``apply`` inside the container's mount namespace;
it returns a note for the log, mostly empty. A mandatory operation that fails refuses the container, an optional one
is skipped with a line.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from runtime_hook.container.syscalls import Syscalls

    class Operation(Protocol):
        """One step of a plan."""

        @property
        def is_mandatory(self) -> bool:
            """Whether a failure refuses the container."""

        def describe(self) -> str:
            """Say what will be done, in one line."""

        def stage(self, syscalls: Syscalls) -> None:
            """Prepare on the host's side."""

        def apply(self, syscalls: Syscalls) -> str:
            """Do it."""


def ensure_folder(syscalls: Syscalls, path: str) -> int:
    """Open a folder of the container, making what is missing of it."""
    try:
        return syscalls.open_folder(path)
    except FileNotFoundError:
        parent, name = os.path.split(path)
        if not name:
            raise
        syscalls.make_folder(ensure_folder(syscalls, parent), name)
        return syscalls.open_folder(path)


def name_taken(mode: int) -> OSError:
    """Return the error for a name that the image uses for something else."""
    kinds = {
        stat.S_IFREG: "a file",
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "another device",
        stat.S_IFBLK: "a block device",
    }
    return OSError(errno.EEXIST, f"the image has {kinds.get(stat.S_IFMT(mode), 'something else')} there")
