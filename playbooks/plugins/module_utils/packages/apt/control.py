"""Reads what a Debian package file says of itself, once: dpkg-deb starts three processes more for each file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished, Host

_TIMEOUT_S = 120.0
_Content = tuple[int, int, int, int]  # device, inode, size, time: a second link to a file is the same content

_known: dict[tuple[Host, _Content], Finished] = {}


def read_control(host: Host, file: str) -> Finished:
    """Return what ``dpkg-deb --field`` answers: the control fields, or why the file has none."""
    content = _content(host, file)
    if content is None or (found := _known.get((host, content))) is None:
        found = host.run(["dpkg-deb", "--field", file], _TIMEOUT_S)
        if content is not None and not found.return_code:
            _known[host, content] = found
    return found


def _content(host: Host, file: str) -> _Content | None:
    try:
        found = host.path(file).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
