"""Unix sockets: addresses of any length, which socket a name leads to, and who is at the other end.

A socket's path has at most 107 bytes. A longer one is reached through an open descriptor of the folder.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_MAX_SOCKET_PATH = 107  # sizeof(sockaddr_un.sun_path) - 1, unix(7)


@dataclass(frozen=True)
class SocketIdentity:
    """Tells one socket from the next of the same name; an inode number alone is used again at once."""

    device: int
    inode: int
    changed_ns: int


def socket_identity(path: Path) -> SocketIdentity | None:
    """Return who listens there, None where none does, or it is no socket."""
    try:
        found = path.stat()
    except OSError:
        return None
    if not stat.S_ISSOCK(found.st_mode):
        return None
    return SocketIdentity(found.st_dev, found.st_ino, found.st_ctime_ns)


class SocketAddress:
    """The path of a socket in a folder, short enough; keeps a descriptor open where its own is too long."""

    def __init__(self, folder: Path, name: str) -> None:
        path = str(folder / name)
        self._descriptor = -1
        if len(os.fsencode(path)) > _MAX_SOCKET_PATH:
            self._descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            path = f"/proc/self/fd/{self._descriptor}/{name}"
        self.path = path

    @property
    def target(self) -> str:
        """The path as gRPC's own libraries name it."""
        return f"unix:{self.path}"

    def close(self) -> None:
        """Let go of the folder; the address is not usable afterwards."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid (unix(7))


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Return process and user id of the other end, as the kernel knows them."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return pid, uid
