"""Defines what operations may do to a container: one interface, by descriptors and single names only.

``kernel.KernelSyscalls`` is the real one; ``undo.UndoLog`` wraps any and remembers how to undo; tests record.
No method takes a path of the container except ``open_folder``, which the kernel resolves inside the root.
All fail with OSError.
"""

from __future__ import annotations

from runtime_hook.base.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol, TypeVar

    from runtime_hook.loader.elf import ReadAt

    T = TypeVar("T")


# What may be staged. ``socket``: one, or the folder of some; it stays writable, nothing in it can be executed.
KIND_FILE = "file"
KIND_FOLDER = "folder"
KIND_SOCKET = "socket"


@value
class FileStatus:
    """What has a name already: st_mode, and the device number of a device node."""

    mode: int
    major: int = 0
    minor: int = 0


if TYPE_CHECKING:  # 25 functions that nobody calls: 0.1 ms

    class Syscalls(Protocol):
        """Everything an operation can ask of the kernel."""

        @property
        def makes_nodes(self) -> bool:
            """Whether device nodes that are made here can be opened: not in a user namespace."""

        def stage_file(self, source: str, kind: str = KIND_FILE) -> None:
            """Clone something of the host as a detached mount, nosuid, nodev, mostly read-only. On the host's side."""

        def stage_node(self, source: str, major: int, minor: int, mode: int) -> None:
            """Clone a device node of the host as a detached mount; ENXIO when it is another device.

            EACCES when it is closed to those whom ``mode`` lets open it.
            """

        def stage_device_rules(self) -> None:
            """Make sure that device rules can be set at all. On the host's side."""

        def open_folder(self, path: str) -> int:
            """Open a folder of the container; neither leaves the root nor crosses into another mount."""

        def open_device_folder(self, subfolder: str = "") -> int:
            """Open the container's ``/dev``, which is a mount of its own but never the host's, or a folder of it."""

        def make_folder(self, folder: int, name: str) -> None:
            """Make a folder that does not exist."""

        def remove_folder(self, folder: int, name: str) -> None:
            """Remove an empty folder."""

        def lstat(self, folder: int, name: str) -> FileStatus | None:
            """Look at a name without following it; EXDEV when another mount covers it."""

        def attach_new(self, source: str, folder: int, name: str) -> int:
            """Attach what was staged on a target made for it; FileExistsError when the name is taken."""

        def attach(self, source: str, folder: int, name: str) -> int:
            """Attach what was staged over a regular file (a folder over a folder); return a handle to detach it."""

        def mask_proc(self, target: str, shown: tuple[str, ...]) -> int:
            """Cover a driver's folder in the container's procfs; return a handle, -1 where there is none to cover."""

        def remove_target(self, source: str, folder: int, name: str) -> None:
            """Remove a target that ``attach_new`` made."""

        def detach(self, handle: int) -> None:
            """Take a mount away."""

        def read_link(self, folder: int, name: str) -> str:
            """Return the text of a symbolic link."""

        def make_link(self, folder: int, name: str, target: str) -> None:
            """Make a symbolic link; FileExistsError when the name is taken."""

        def put_link(self, folder: int, name: str, target: str) -> None:
            """Make a symbolic link, replacing whatever non-folder has the name, in one step."""

        def read_file(self, folder: int, name: str, limit_bytes: int) -> bytes | None:
            """Return a regular file's content; None when it is larger than the limit."""

        def names(self, folder: int, limit: int) -> list[str] | None:
            """Return the names in a folder; None when there are more than the limit."""

        def inspect_file(self, folder: int, name: str, parse: Callable[[ReadAt], T]) -> T:
            """Return what a parser makes of a regular file, by reads of its parts."""

        def put_file(self, folder: int, name: str, data: bytes) -> None:
            """Write a file, replacing whatever non-folder has the name, in one step."""

        def remove(self, folder: int, name: str) -> None:
            """Remove a name that is not a folder."""

        def make_node(self, folder: int, name: str, major: int, minor: int, mode: int) -> None:
            """Make a character device node."""

        def allow_devices(self, rules: tuple[str, ...]) -> None:
            """Add rules like ``c 195:0 rw`` to the container's device cgroup: all, or none."""

        def deny_devices(self, rules: tuple[str, ...]) -> None:
            """Take the rules away from the container's device cgroup that were added last."""
