"""Reads an image's folder of CUDA forward compatibility, in a running container or below a root on the host.

What is read in it, and what follows, is for ``loader.compat`` to say; here is how its files are reached: through
descriptors inside a running container, through ordinary paths where nothing runs.
"""

from __future__ import annotations

import os
import stat

from runtime_hook.base.reading import describe_error
from runtime_hook.loader.compat import Compat, examine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from runtime_hook.base.deadline import Deadline
    from runtime_hook.container.injection import Namespaces
    from runtime_hook.host.hosttree import HostTree
    from runtime_hook.loader.compat import HostDriver
    from runtime_hook.loader.elf import ReadAt
    from runtime_hook.loader.platforms import Platform

    T = TypeVar("T")


class ContainerFolder:
    """The folder of a running container: by descriptors, inside its root.

    Every look goes into the container's namespace and comes back: what is found is judged on the host's side, where
    a module that is imported for it is the host's own.
    """

    def __init__(self, syscalls: Namespaces, deadline: Deadline, path: str) -> None:
        self.path = path
        self._syscalls = syscalls
        self._deadline = deadline

    def _inside(self, look: Callable[[int], T]) -> T:
        self._deadline.hold()  # an expiry on the way back would leave us there
        try:
            self._syscalls.enter()
            return look(self._syscalls.open_folder(self.path))
        finally:
            self._syscalls.leave()
            self._deadline.release()

    def names(self, limit: int) -> list[str] | None:
        """Return the names in it; None when there are more."""
        return self._inside(lambda folder: self._syscalls.names(folder, limit))

    def link(self, name: str) -> str | None:
        """Return the text of a symbolic link; None for anything else."""

        def read(folder: int) -> str | None:
            status = self._syscalls.lstat(folder, name)
            is_link = status is not None and stat.S_ISLNK(status.mode)
            return self._syscalls.read_link(folder, name) if is_link else None

        return self._inside(read)

    def inspect(self, name: str, parse: Callable[[ReadAt], T]) -> T | None:
        """Return what a parser makes of a regular file; None for anything else."""
        try:
            return self._inside(lambda folder: self._syscalls.inspect_file(folder, name, parse))
        except OSError:
            return None


class TreeFolder:
    """The folder below a root on the host's side."""

    def __init__(self, tree: HostTree, path: str) -> None:
        self.path = path
        self._tree = tree
        self._folder = tree.resolve(path)

    def names(self, limit: int) -> list[str] | None:
        """Return the names in it; None when there are more."""
        found = self._tree.names(self._folder)
        return found if len(found) <= limit else None

    def link(self, name: str) -> str | None:
        """Return the text of a symbolic link; None for anything else."""
        try:
            return os.readlink(self._tree.host_path(f"{self._folder}/{name}"))
        except OSError:
            return None

    def inspect(self, name: str, parse: Callable[[ReadAt], T]) -> T | None:
        """Return what a parser makes of a regular file; None for anything else."""
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
        try:
            descriptor = os.open(self._tree.host_path(f"{self._folder}/{name}"), flags)
        except OSError:
            return None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            return parse(lambda length, offset: os.pread(descriptor, length, offset))
        finally:
            os.close(descriptor)


def examine_container(folder: ContainerFolder, host: HostDriver, platform: Platform) -> Compat:
    """Decide for a container that has the folder; what cannot be read leaves the host's driver in use."""
    try:
        return examine(folder, host, platform)
    except OSError as reason:
        return Compat(folder.path, is_used=False, reason=f"{folder.path}: {describe_error(reason)}")
