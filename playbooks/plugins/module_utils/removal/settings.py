"""Keeps settings of packages through their removal, where they are not as the package brought them."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.host import Host

_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class KeptFile:
    """A file with its mode and owner, and those of the folders that it needs, from the outermost on."""

    path: str
    content: bytes
    mode: int
    owner: tuple[int, int]
    folders: tuple[tuple[str, int, tuple[int, int]], ...]

    def put_back(self, host: Host) -> None:
        """Write it again unless it is there; raises OSError."""
        place = host.path(self.path)
        if place.exists():
            return
        for folder, mode, owner in self.folders:
            if not host.path(folder).exists():
                host.path(folder).mkdir()
                os.chown(host.path(folder), *owner)
                host.path(folder).chmod(mode)
        place.touch(mode=0o600)
        place.write_bytes(self.content)
        os.chown(place, *self.owner)
        place.chmod(self.mode)


def keep_settings(host: Host, names: Sequence[str]) -> list[KeptFile]:
    """Return the settings of packages that somebody has written or changed."""
    done = host.run(["dpkg-query", "--show", "--showformat", "${Conffiles}\\n", *names], _TIMEOUT_S)
    rows = (line.split() for line in done.stdout.splitlines() if line.strip())
    found = (_read(host, row[0], row[1]) for row in rows if len(row) > 1 and row[0].startswith("/"))
    return [one for one in found if one is not None]


def _read(host: Host, path: str, brought: str) -> KeptFile | None:
    place = host.path(path)
    if place.is_symlink() or not place.is_file():
        return None
    content = place.read_bytes()
    if hashlib.md5(content, usedforsecurity=False).hexdigest() == brought:  # the digest that dpkg has
        return None
    status = place.stat()
    folders = []
    parts = path.split("/")[1:-1]
    for count in range(1, len(parts) + 1):
        folder = "/" + "/".join(parts[:count])
        of_folder = host.path(folder).stat()
        folders.append((folder, stat.S_IMODE(of_folder.st_mode), (of_folder.st_uid, of_folder.st_gid)))
    return KeptFile(path, content, stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid), tuple(folders))
