"""Binds files of the host into the container, makes links, and writes small files of our own."""

from __future__ import annotations

import errno
import stat

from runtime_hook.base.values import value
from runtime_hook.container.operations.operation import ensure_folder, name_taken
from runtime_hook.container.syscalls import KIND_FILE, KIND_SOCKET

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.container.syscalls import Syscalls

_TEXT_LIMIT_BYTES = 1 << 16


@value
class BindFile:
    """Show something of the host in the container: a file or folder read-only, a socket (or those of a folder) for use.

    Attributes of the mounts are those of NVIDIA's toolkit (``internal/discover``, its IPC mounts), but for a folder of
    sockets: it is read-only, as it was there until 1.18.2.
    """

    source: str
    folder: str
    name: str
    is_mandatory: bool
    kind: str = KIND_FILE

    def describe(self) -> str:
        """Say what will be done, in one line."""
        how = "for use" if self.kind == KIND_SOCKET else "read-only"
        return f"bind {self.source} on {self.folder}/{self.name}, {how}"

    def stage(self, syscalls: Syscalls) -> None:
        """Clone it on the host's side."""
        syscalls.stage_file(self.source, self.kind)

    def apply(self, syscalls: Syscalls) -> str:
        """Attach the clone, on a target made for it where there is none."""
        folder = ensure_folder(syscalls, self.folder)
        try:
            syscalls.attach_new(self.source, folder, self.name)
        except FileExistsError:
            status = syscalls.lstat(folder, self.name)
            if status is not None and not self._may_cover(status.mode):
                raise name_taken(status.mode) from None
            syscalls.attach(self.source, folder, self.name)
        return ""

    def _may_cover(self, mode: int) -> bool:
        """Tell whether a target of this type may be covered; that it fits the source is for ``attach`` to say."""
        return stat.S_ISREG(mode) or (self.kind != KIND_FILE and stat.S_ISDIR(mode))


@value
class LinkName:
    """Lead a name to something in the same folder or below the library folder.

    A link of the image is replaced. A regular file of the image (a stub, an old driver) is not destroyed: the host's
    library ``source`` covers it; without one it stands in the way.
    """

    folder: str
    name: str
    target: str
    source: str
    is_mandatory: bool

    def describe(self) -> str:
        """Say what will be done, in one line."""
        return f"link {self.folder}/{self.name} to {self.target}"

    def stage(self, syscalls: Syscalls) -> None:
        """Need nothing of the host: the source is staged by the operation that binds it."""

    def apply(self, syscalls: Syscalls) -> str:
        """Make the link, or cover the file that has its name."""
        folder = ensure_folder(syscalls, self.folder)
        try:
            syscalls.make_link(folder, self.name, self.target)
        except FileExistsError:
            self._replace(syscalls, folder)
        return ""

    def _replace(self, syscalls: Syscalls, folder: int) -> None:
        status = syscalls.lstat(folder, self.name)
        if status is not None and stat.S_ISREG(status.mode) and self.source:
            syscalls.attach(self.source, folder, self.name)
        elif status is not None and not stat.S_ISLNK(status.mode):
            raise name_taken(status.mode)
        elif status is None or syscalls.read_link(folder, self.name) != self.target:
            syscalls.put_link(folder, self.name, self.target)


@value
class WriteText:
    """Write a small file of our own; one with the same content is left as it is."""

    folder: str
    name: str
    text: str
    is_mandatory: bool = False

    def describe(self) -> str:
        """Say what will be done, in one line."""
        return f"write {self.folder}/{self.name}"

    def stage(self, syscalls: Syscalls) -> None:
        """Need nothing of the host."""

    def apply(self, syscalls: Syscalls) -> str:
        """Write the file in one step."""
        folder, data = ensure_folder(syscalls, self.folder), self.text.encode()
        status = syscalls.lstat(folder, self.name)
        if status is not None:
            if not stat.S_ISREG(status.mode):
                raise name_taken(status.mode)
            if syscalls.read_file(folder, self.name, _TEXT_LIMIT_BYTES) == data:
                return ""
        syscalls.put_file(folder, self.name, data)
        return ""


@value
class NoteAbsent:
    """Say that the container starts without something, and why."""

    what: str
    why: str = "not on this host"
    is_mandatory: bool = False

    def describe(self) -> str:
        """Say what would be done, in one line."""
        return f"give {self.what}"

    def stage(self, syscalls: Syscalls) -> None:
        """Fail: there is nothing to give."""
        raise OSError(errno.ENOENT, self.why)

    def apply(self, syscalls: Syscalls) -> str:
        """Do nothing: staging has failed."""
        return ""
