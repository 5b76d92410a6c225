"""Writes the upper layer of a node: files written before its first boot, above the base tree."""

from __future__ import annotations

import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Layer:
    """An overlay's upper folder, the base tree, and the layers in between. Only for a node that is not running."""

    upper: Path
    base: Path
    between: tuple[Path, ...] = ()

    def write(self, place: str, text: str, mode: int = 0o644) -> None:
        """Write the file at absolute path ``place`` of the node."""
        path = self.reserve(place)
        path.write_text(text)
        path.chmod(mode)

    def append(self, place: str, text: str) -> None:
        """Write the file: the base tree's content, then ``text``."""
        below = self._below(Path(place.lstrip("/")))
        self.write(place, (below.read_text() if below.exists() else "") + text)

    def copy(self, place: str, source: Path) -> None:
        """Copy the file ``source``, mode included, to ``place``."""
        path = self.reserve(place)
        path.unlink(missing_ok=True)
        shutil.copy(source, path)

    def copy_tree(self, place: str, source: Path, without: tuple[str, ...] = ()) -> None:
        """Copy every file below ``source`` into ``place``, but for the folders ``without``; links stay links."""
        for folder, _, names in os.walk(source):
            for name in names:
                file = Path(folder, name)
                if any(file.is_relative_to(source / each) for each in without):
                    continue
                target = self.reserve(str(Path(place, file.relative_to(source))))
                target.unlink(missing_ok=True)
                shutil.copy(file, target, follow_symlinks=False)

    def link(self, place: str, target: str) -> None:
        """Create the symbolic link ``place`` to ``target``."""
        path = self.reserve(place)
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    def folder(self, place: str) -> Path:
        """Create a folder and its parents; each gets mode and owner from the base tree if it exists there."""
        path = self.upper
        for part in Path(place).parts[1:]:
            path /= part
            below = self._below(path.relative_to(self.upper))
            if below.is_symlink():
                raise ValueError(f"{place}: {below} is a symbolic link in the base tree")
            if not path.exists():
                path.mkdir(mode=0o755)
                if below.exists():
                    # Not copystat: with overlayfs's own attributes the folder would hide what is below it.
                    os.chown(path, below.stat().st_uid, below.stat().st_gid)
                    path.chmod(stat.S_IMODE(below.stat().st_mode))
        return path

    def _below(self, relative: Path) -> Path:
        """Return the file or folder that would be visible without the upper folder; it need not exist."""
        found = (layer / relative for layer in (*self.between, self.base))
        return next((path for path in found if path.exists() or path.is_symlink()), self.base / relative)

    def reserve(self, place: str) -> Path:
        """Return the path of ``place`` in the upper folder, and create its parents."""
        return self.folder(str(Path(place).parent)) / Path(place).name
