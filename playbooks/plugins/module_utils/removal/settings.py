"""Keeps settings of packages through their removal, where they are not as the package brought them.

They lie on the disk meanwhile, so that a run that is killed loses none: the next one puts them back.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.driver.record.durable import write_durably
from ansible_collections.grapnel.node.plugins.module_utils.packages import family

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

KEPT = "/var/lib/grapnel/settings.json"
_TIMEOUT_S = 60.0
_RPM_FILES = "[%{FILENAMES}\\t%{FILEDIGESTS}\\t%{FILEFLAGS:fflags}\\n]"
_RPM_FIELDS = 3


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


def read_kept(host: Host) -> list[KeptFile]:
    """Return what a run has kept that was killed before it put that back."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return [_parse(one) for one in json.loads(host.path(KEPT).read_bytes())]
    return []


def keep_settings(host: Host, names: Sequence[str]) -> None:
    """Keep the settings of packages that somebody has written or changed; raises OSError."""
    kept = {one.path: one for one in (*find_settings(host, names), *read_kept(host))}
    if kept:
        host.path(KEPT).parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        write_durably(host.path(KEPT), json.dumps([_describe(one) for one in kept.values()]).encode("ascii"))


def put_back_settings(host: Host) -> None:
    """Put back what was kept; raises OSError."""
    for one in read_kept(host):
        one.put_back(host)
    host.path(KEPT).unlink(missing_ok=True)


def find_settings(host: Host, names: Sequence[str]) -> list[KeptFile]:
    """Return the settings of packages that are not as the packages brought them."""
    found = (_read(host, path, brought) for path, brought in _brought(host, names))
    return [one for one in found if one is not None]


def find_unused(host: Host, names: Sequence[str]) -> list[str]:
    """Return what rpm has written beside settings that were there already, as far as nobody has changed it."""
    beside = ((f"{path}.rpmnew", digest) for path, digest in _brought(host, names))
    return [path for path, digest in beside if host.path(path).is_file() and _read(host, path, digest) is None]


def _brought(host: Host, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the files of settings that packages bring, with their digests."""
    if family.find_manager(host) == family.APT:
        done = host.run(["dpkg-query", "--show", "--showformat", "${Conffiles}\\n", *names], _TIMEOUT_S)
        rows = [line.split()[:2] for line in done.stdout.splitlines()]
    else:
        done = host.run(["rpm", "--query", "--queryformat", _RPM_FILES, *names], _TIMEOUT_S)
        listed = (line.split("\t") for line in done.stdout.splitlines())
        rows = [fields[:2] for fields in listed if len(fields) == _RPM_FIELDS and "c" in fields[2]]
    return [(row[0], row[1]) for row in rows if len(row) > 1 and row[0].startswith("/")]


def _read(host: Host, path: str, brought: str) -> KeptFile | None:
    place = host.path(path)
    if place.is_symlink() or not place.is_file():
        return None
    content = place.read_bytes()
    digests = (hashlib.md5(content, usedforsecurity=False), hashlib.sha256(content))  # dpkg's, and rpm's
    if brought in {each.hexdigest() for each in digests}:
        return None
    status = place.stat()
    folders = []
    parts = path.split("/")[1:-1]
    for count in range(1, len(parts) + 1):
        folder = "/" + "/".join(parts[:count])
        of_folder = host.path(folder).stat()
        folders.append((folder, stat.S_IMODE(of_folder.st_mode), (of_folder.st_uid, of_folder.st_gid)))
    return KeptFile(path, content, stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid), tuple(folders))


def _describe(one: KeptFile) -> dict[str, Any]:
    content = base64.b64encode(one.content).decode("ascii")
    return {"path": one.path, "content": content, "mode": one.mode, "owner": one.owner, "folders": one.folders}


def _parse(tree: dict[str, Any]) -> KeptFile:
    folders = tuple((str(path), int(mode), (int(uid), int(gid))) for path, mode, (uid, gid) in tree["folders"])
    uid, gid = tree["owner"]
    content = base64.b64decode(tree["content"])
    return KeptFile(str(tree["path"]), content, int(tree["mode"]), (int(uid), int(gid)), folders)
