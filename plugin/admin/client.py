"""The tools' end of the socket. Blocking, and without asyncio: a verb is a short process."""

from __future__ import annotations

import errno
import json
import socket
import time
from typing import TYPE_CHECKING, Any

from plugin.admin import MAX_LINE_BYTES
from plugin.base.errors import AdminError, os_reason

if TYPE_CHECKING:
    from pathlib import Path

_ABSENT = {errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR}


def ask(path: Path, request: dict[str, Any], timeout_s: float) -> dict[str, Any] | None:
    """Return the daemon's answer; None when no daemon runs (it ended meanwhile counts). Raises AdminError."""
    deadline = time.monotonic() + timeout_s
    try:
        line = _exchange(path, json.dumps(request).encode() + b"\n", deadline)
    except TimeoutError as error:
        raise AdminError(
            f"{path}: the daemon does not answer within {timeout_s:g} s",
            "look at it with: systemctl status grapnel-node; restart it with: systemctl restart grapnel-node",
        ) from error
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise AdminError(f"{path}: {os_reason(error)}", "are you root?") from error
    if not line:
        return None
    return _understood(path, line)


def _exchange(path: Path, line: bytes, deadline: float) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
        connection.settimeout(max(0.01, deadline - time.monotonic()))
        connection.connect(str(path))
        try:
            connection.sendall(line)
            return _read_line(connection, deadline)
        except (BrokenPipeError, ConnectionResetError):
            return b""  # killed in the middle


def _read_line(connection: socket.socket, deadline: float) -> bytes:
    received = b""
    while not received.endswith(b"\n") and len(received) <= MAX_LINE_BYTES:
        connection.settimeout(max(0.01, deadline - time.monotonic()))
        part = connection.recv(65536)
        if not part:
            return b""
        received += part
    return received


def _understood(path: Path, line: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(line)
    except ValueError as error:
        raise AdminError(f"{path}: the answer is not json", "is another program behind this socket?") from error
    if not isinstance(answer, dict):
        raise AdminError(f"{path}: the answer is not an object", "is another program behind this socket?")
    if "error" in answer:
        raise AdminError(f"{path}: {answer['error']}", "the daemon and this program may be of two releases: restart it")
    return answer
