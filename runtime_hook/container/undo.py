"""Records how to undo every change to a container, so that a failed start leaves nothing half done.

Each change and its entry are one step even when the time limit strikes in between. Undoing goes backwards and does
not stop at a step that fails; what could not be undone is named.
"""

from __future__ import annotations

import stat

from runtime_hook.base.reading import describe_error
from runtime_hook.container.syscalls import KIND_FILE
from runtime_hook.loader.cache import CACHE_LIMIT_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from runtime_hook.base.deadline import Deadline
    from runtime_hook.container.syscalls import FileStatus, Syscalls
    from runtime_hook.loader.elf import ReadAt

    T = TypeVar("T")
    Undo = tuple[str, Callable[[], None]]


class UndoLog:
    """Syscalls that can be undone; same interface, so operations do not know it is there."""

    def __init__(self, syscalls: Syscalls, deadline: Deadline) -> None:
        self._syscalls = syscalls
        self._deadline = deadline
        self._undo: list[Undo] = []
        self._read: dict[tuple[int, str], bytes] = {}

    @property
    def makes_nodes(self) -> bool:
        """Whether device nodes that are made here can be opened."""
        return self._syscalls.makes_nodes

    def mark(self) -> int:
        """Return a place to which ``undo_to`` can go back."""
        return len(self._undo)

    def undo_to(self, mark: int) -> list[str]:
        """Undo every change since a mark, newest first; return what could not be undone."""
        failed = []
        self._deadline.hold()
        try:
            while len(self._undo) > mark:
                name, undo = self._undo.pop()
                try:
                    undo()
                except OSError as reason:
                    failed.append(f"{name}: {describe_error(reason)}")
        finally:
            self._deadline.release()
        return failed

    def _change(self, name: str, change: Callable[[], None], undo: Callable[[], None]) -> None:
        self._deadline.hold()
        try:
            change()
            self._undo.append((name, undo))
        finally:
            self._deadline.release()

    def stage_file(self, source: str, kind: str = KIND_FILE) -> None:
        """Stage a host file; a detached clone goes away with the process."""
        self._syscalls.stage_file(source, kind)

    def stage_node(self, source: str, major: int, minor: int, mode: int) -> None:
        """Stage a host's device node; a detached clone goes away with the process."""
        self._syscalls.stage_node(source, major, minor, mode)

    def stage_device_rules(self) -> None:
        """Make sure that device rules can be set."""
        self._syscalls.stage_device_rules()

    def open_folder(self, path: str) -> int:
        """Open a folder of the container."""
        return self._syscalls.open_folder(path)

    def open_device_folder(self, subfolder: str = "") -> int:
        """Open the container's ``/dev``, or a folder of it."""
        return self._syscalls.open_device_folder(subfolder)

    def lstat(self, folder: int, name: str) -> FileStatus | None:
        """Look at a name."""
        return self._syscalls.lstat(folder, name)

    def read_link(self, folder: int, name: str) -> str:
        """Return the text of a symbolic link."""
        return self._syscalls.read_link(folder, name)

    def read_file(self, folder: int, name: str, limit_bytes: int) -> bytes | None:
        """Return a regular file's content, and keep it for undoing what may be written over it."""
        content = self._syscalls.read_file(folder, name, limit_bytes)
        if content is not None:
            self._read[folder, name] = content
        return content

    def names(self, folder: int, limit: int) -> list[str] | None:
        """Return the names in a folder."""
        return self._syscalls.names(folder, limit)

    def inspect_file(self, folder: int, name: str, parse: Callable[[ReadAt], T]) -> T:
        """Return what a parser makes of a regular file."""
        return self._syscalls.inspect_file(folder, name, parse)

    def make_folder(self, folder: int, name: str) -> None:
        """Make a folder; undone by removing it."""
        calls = self._syscalls
        self._change(name, lambda: calls.make_folder(folder, name), lambda: calls.remove_folder(folder, name))

    def remove_folder(self, folder: int, name: str) -> None:
        """Remove a folder; undone by making it again."""
        calls = self._syscalls
        self._change(name, lambda: calls.remove_folder(folder, name), lambda: calls.make_folder(folder, name))

    def _mount(self, name: str, mount: Callable[[], int], remove: Callable[[], None] | None = None) -> int:
        """Make a mount; undone by detaching it, then removing the target that was made for it."""
        self._deadline.hold()
        try:
            handle = mount()
            if remove is not None:
                self._undo.append((name, remove))
            if handle >= 0:
                self._undo.append((name, lambda: self._syscalls.detach(handle)))
        finally:
            self._deadline.release()
        return handle

    def attach(self, source: str, folder: int, name: str) -> int:
        """Attach a host file; undone by detaching it."""
        return self._mount(name, lambda: self._syscalls.attach(source, folder, name))

    def attach_new(self, source: str, folder: int, name: str) -> int:
        """Attach a host file on a new target; undone by detaching it and removing the target."""
        calls = self._syscalls
        return self._mount(
            name, lambda: calls.attach_new(source, folder, name), lambda: calls.remove_target(source, folder, name)
        )

    def remove_target(self, source: str, folder: int, name: str) -> None:
        """Remove a target; cannot be undone."""
        self._syscalls.remove_target(source, folder, name)

    def mask_proc(self, target: str, shown: tuple[str, ...]) -> int:
        """Cover a folder of the container's procfs; undone by detaching the cover with all that is in it."""
        return self._mount(target, lambda: self._syscalls.mask_proc(target, shown))

    def detach(self, handle: int) -> None:
        """Detach a host file; cannot be undone, as a detached mount is gone."""
        self._syscalls.detach(handle)

    def make_link(self, folder: int, name: str, target: str) -> None:
        """Make a link where there is nothing; undone by removing it."""
        calls = self._syscalls
        self._change(name, lambda: calls.make_link(folder, name, target), lambda: calls.remove(folder, name))

    def put_link(self, folder: int, name: str, target: str) -> None:
        """Make a link; undone by the link that was there, or by removing it."""
        calls = self._syscalls
        before = calls.lstat(folder, name)
        is_link = before is not None and stat.S_ISLNK(before.mode)
        old = calls.read_link(folder, name) if is_link else None

        def undo() -> None:
            if old is None:
                calls.remove(folder, name)
            else:
                calls.put_link(folder, name, old)

        self._change(name, lambda: calls.put_link(folder, name, target), undo)

    def put_file(self, folder: int, name: str, data: bytes) -> None:
        """Write a file; undone by the content that was there, or by removing it."""
        calls = self._syscalls
        old = self._read.get((folder, name))
        if old is None and calls.lstat(folder, name) is not None:
            old = calls.read_file(folder, name, CACHE_LIMIT_BYTES)

        def undo() -> None:
            if old is None:
                calls.remove(folder, name)
            else:
                calls.put_file(folder, name, old)

        self._change(name, lambda: calls.put_file(folder, name, data), undo)

    def remove(self, folder: int, name: str) -> None:
        """Remove a name; cannot be undone, so operations use it for nothing that was there before."""
        self._syscalls.remove(folder, name)

    def make_node(self, folder: int, name: str, major: int, minor: int, mode: int) -> None:
        """Make a device node; undone by removing it."""
        calls = self._syscalls
        self._change(
            name, lambda: calls.make_node(folder, name, major, minor, mode), lambda: calls.remove(folder, name)
        )

    def allow_devices(self, rules: tuple[str, ...]) -> None:
        """Allow devices; undone by denying them."""
        calls = self._syscalls
        self._change(", ".join(rules), lambda: calls.allow_devices(rules), lambda: calls.deny_devices(rules))

    def deny_devices(self, rules: tuple[str, ...]) -> None:
        """Deny devices; undone by allowing them."""
        calls = self._syscalls
        self._change(", ".join(rules), lambda: calls.deny_devices(rules), lambda: calls.allow_devices(rules))
