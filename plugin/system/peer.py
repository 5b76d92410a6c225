"""Who is at the other end of a unix socket. Not here: what they may do."""

from __future__ import annotations

import socket
import struct

_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid (unix(7))


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Return process and user id of the other end, as the kernel knows them."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return pid, uid
