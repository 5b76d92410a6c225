"""The host's file system seen below a root: ``/``, a driver container's tree, or a test's fake one.

The tree is trusted (root wrote it), but its symbolic links are meant relative to its root, so they are followed here.
"""

from __future__ import annotations

import os
import stat

from runtime_hook.errors import InventoryError
from runtime_hook.reading import read_regular

_MAX_LINKS = 40


class HostTree:
    """Reads of files by their path inside the tree."""

    def __init__(self, root: str = "/") -> None:
        self.root = "/" if root == "/" else os.path.abspath(root)

    def host_path(self, path: str) -> str:
        """Return where the host sees a path of the tree (links in it are not followed)."""
        return path if self.root == "/" else self.root + path

    def resolve(self, path: str) -> str:
        """Return the path in the tree with every symbolic link followed; a missing tail stays as it is."""
        if self.root == "/":
            return os.path.realpath(path)
        done, todo, links = "/", path.split("/"), 0
        while todo:
            name = todo.pop(0)
            if name in {"", "."}:
                continue
            if name == "..":
                done = os.path.dirname(done)
                continue
            here = os.path.join(done, name)
            target = self._link(here)
            if target is None:
                done = here
                continue
            links += 1
            if links > _MAX_LINKS:
                raise InventoryError(f"{path} is a loop of symbolic links")
            done = "/" if target.startswith("/") else done
            todo = target.split("/") + todo
        return done

    def _link(self, path: str) -> str | None:
        try:
            return os.readlink(self.host_path(path))
        except OSError:
            return None

    def status(self, path: str) -> os.stat_result | None:
        """Return stat of what a path leads to, or None."""
        try:
            return os.lstat(self.host_path(self.resolve(path)))
        except OSError:
            return None

    def is_file(self, path: str) -> bool:
        """Tell whether a path leads to a regular file."""
        status = self.status(path)
        return status is not None and stat.S_ISREG(status.st_mode)

    def has(self, path: str) -> bool:
        """Tell whether something has this name, even a dangling link."""
        return os.path.lexists(
            self.host_path(os.path.join(self.resolve(os.path.dirname(path)), os.path.basename(path)))
        )

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder; none where there is no folder."""
        try:
            return sorted(os.listdir(self.host_path(self.resolve(folder))))
        except OSError:
            return []

    def read(self, path: str, limit_bytes: int) -> bytes | None:
        """Return a regular file's content, or None where there is none."""
        try:
            return read_regular(self.host_path(self.resolve(path)), limit_bytes, InventoryError)
        except FileNotFoundError:
            return None
