"""Reads the host's file system below a root: ``/``, a driver container's tree, or a test's fake one.

The tree is trusted (root wrote it), but its symbolic links are meant relative to its root, so they are followed here.
"""

from __future__ import annotations

import os
import stat

from runtime_hook.base.errors import InventoryError
from runtime_hook.base.reading import read_regular

_MAX_LINKS = 40


class HostTree:
    """Reads of files by their path inside the tree."""

    def __init__(self, root: str = "/") -> None:
        self.root = "/" if root == "/" else os.path.abspath(root)
        self._folders: dict[str, str] = {}

    def forget(self) -> None:
        """Forget where folders lead: called before every scan of the host."""
        self._folders.clear()

    def host_path(self, path: str) -> str:
        """Return where the host sees a path of the tree (links in it are not followed)."""
        return path if self.root == "/" else self.root + path

    def _followed(self, path: str) -> str:
        """Return where the host sees what a path leads to; below / the kernel follows links itself, and cheaply."""
        return path if self.root == "/" else self.root + self.resolve(path)

    def _unfollowed(self, path: str) -> str:
        """Return where the host sees a name itself; links in its folder's path are followed."""
        if self.root == "/":
            return path
        folder, _, name = path.rpartition("/")
        return f"{self.root}{self._resolve_folder(folder, 0)}/{name}"

    def resolve(self, path: str) -> str:
        """Return the path in the tree with every symbolic link followed; a missing tail stays as it is."""
        return os.path.realpath(path) if self.root == "/" else self._resolve(path, 0)

    def _resolve(self, path: str, links: int) -> str:
        folder, name = os.path.split(path)
        done = self._resolve_folder(folder, links)
        if name == "..":
            return os.path.dirname(done)
        here = done if name in {"", "."} else os.path.join(done, name)
        target = self._link(here)
        if target is None:
            return here
        if links == _MAX_LINKS:
            raise InventoryError(f"{path} is a loop of symbolic links")
        return self._resolve(os.path.join(done, target), links + 1)

    def _resolve_folder(self, folder: str, links: int) -> str:
        if folder in {"", "/"}:
            return "/"
        if folder not in self._folders:
            self._folders[folder] = self._resolve(folder, links)
        return self._folders[folder]

    def _link(self, path: str) -> str | None:
        try:
            return os.readlink(self.host_path(path))
        except OSError:
            return None

    def status(self, path: str) -> os.stat_result | None:
        """Return stat of what a path leads to, or None."""
        try:
            if self.root == "/":
                return os.stat(path)
            found = os.lstat(self._unfollowed(path))  # most names are no links, and asking is cheaper than following
            return os.lstat(self._followed(path)) if stat.S_ISLNK(found.st_mode) else found
        except OSError:
            return None

    def own_status(self, path: str) -> os.stat_result | None:
        """Return stat of a name itself, be it a symbolic link; links in its folder's path are followed."""
        try:
            return os.lstat(self._unfollowed(path))
        except OSError:
            return None

    def is_file(self, path: str) -> bool:
        """Tell whether a path leads to a regular file."""
        status = self.status(path)
        return status is not None and stat.S_ISREG(status.st_mode)

    def is_script(self, path: str) -> bool:
        """Tell whether a file begins as a script does; False for one that cannot be read."""
        try:
            with open(self._followed(path), "rb") as file:
                return file.read(2) == b"#!"
        except OSError:
            return False

    def has(self, path: str) -> bool:
        """Tell whether something has this name, even a dangling link."""
        return self.own_status(path) is not None

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder; none where there is no folder."""
        try:
            return sorted(os.listdir(self._followed(folder)))
        except OSError:
            return []

    def read(self, path: str, limit_bytes: int) -> bytes | None:
        """Return a regular file's content, or None where there is none."""
        try:
            return read_regular(self._followed(path), limit_bytes, InventoryError)
        except FileNotFoundError:
            return None
