"""Has the node daemon limit a container's memory in the driver before it starts (``docs/contracts/memory-limit``).

The hook says which container starts, and what the platform's annotation says of its memory. How much it may have, the
daemon knows by itself. The daemon is root: whoever else sits behind the socket is not believed. A limit that is not set
is fatal where the daemon says so, or, where the daemon says nothing, where the annotation does.
"""

from __future__ import annotations

import errno
import os
import sys
import time

from runtime_hook.base.errors import LimitError, one_line
from runtime_hook.base.jsonfast import dumps_compact, loads
from runtime_hook.base.reading import describe_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable, Mapping

    from runtime_hook.inputs.bundle import OciState
else:
    import _socket as socket  # the C half; the Python half costs 5 ms

SOCKET_NAME = "node.sock"
TIMEOUT_S = 5.0
_PAUSE_S = 0.1
_SHORTEST_S = 0.01
_BUSY = "too many requests at once"  # the daemon's word for it
_REQUIRED = "required,"
_ANSWER_LIMIT_BYTES = 1 << 16
_CREDENTIALS_BYTES = 12  # struct ucred: pid, uid, gid (unix(7))
_SATISFIED = ("set", "not needed")
_HINT = "see: journalctl -u grapnel-node"


def socket_beside(inventory_path: str) -> str:
    """Return where the daemon listens: in the folder of the inventory."""
    return os.path.join(os.path.dirname(inventory_path), SOCKET_NAME)


def sum_of_parts(memory: str, calls: Iterable[tuple[str, ...]]) -> str:
    """Return what a container may have of a GPU: the sum of its parts, each of which has a call of its own.

    ``memory`` is the part of this call; ``calls`` are the arguments of all, of any GPU. The daemon doubts the sum.
    """
    gpu, _, _ = memory.partition("=")
    sizes = [size for uuid, _, size in (call[0].partition("=") for call in set(calls)) if uuid == gpu]
    return f"{gpu}={sum(map(int, sizes))}" if sizes and all(size.isdecimal() for size in sizes) else memory


def limit_memory(path: str, state: OciState, memory: str, timeout_s: float = TIMEOUT_S) -> tuple[str, ...]:
    """Return notes for the log; LimitError where the container must not start."""
    try:
        request = {"verb": "limit", "container": state.id, "cgroup": _group_of(state.pid), "memory": memory}
        answer = _ask_patiently(path, request, timeout_s)
    except (OSError, ValueError) as failure:
        answer = {"reason": f"the node daemon does not say so: {path}: {describe_error(failure)}"}
    result = answer.get("result")
    if result in _SATISFIED:
        return (f"memory limit {result}",)
    reason = one_line(str(answer.get("reason") or answer.get("error") or "the answer says nothing"))
    is_required = answer.get("required", memory.startswith(_REQUIRED))
    if is_required is not False:
        raise LimitError(f"the container's memory is not limited: {reason}", one_line(str(answer.get("hint") or _HINT)))
    return (f"memory limit not set: {reason}",)


def _group_of(pid: int) -> str:
    """Return the path of a process's group of cgroup v2, as the host sees it; "" where it is in none."""
    with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="surrogateescape") as file:
        lines = file.read().split("\n")
    found = next((line[len("0::") :] for line in lines if line.startswith("0::")), "")
    return found.encode("utf-8", "replace").decode()


def _ask_patiently(path: str, request: Mapping[str, object], timeout_s: float) -> dict[str, object]:
    """Ask again while there is time: a daemon that restarts, or has too much to do, costs no container its limit."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            return _ask(path, request, until)
        except OSError:
            if time.monotonic() + _PAUSE_S >= until:
                raise
        time.sleep(_PAUSE_S)


def _ask(path: str, request: Mapping[str, object], until: float) -> dict[str, object]:
    """Exchange one line with the daemon; OSError where it cannot answer now, ValueError where it never will."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(max(_SHORTEST_S, until - time.monotonic()))
        connection.connect(path)
        _check_peer(connection)
        connection.sendall(dumps_compact(request).encode() + b"\n")
        answer = loads(_read_line(connection, until))
    finally:
        connection.close()
    if not isinstance(answer, dict):
        raise ValueError("the answer is not an object")
    if answer.get("error") == _BUSY:
        raise OSError(errno.EBUSY, _BUSY)
    return answer


def _check_peer(connection: socket.socket) -> None:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS_BYTES)
    uid = int.from_bytes(credentials[4:8], sys.byteorder)
    if uid != 0:
        raise ValueError(f"user {uid} listens there, and not root")


def _read_line(connection: socket.socket, until: float) -> bytes:
    received = b""
    while not received.endswith(b"\n") and len(received) <= _ANSWER_LIMIT_BYTES:
        connection.settimeout(max(_SHORTEST_S, until - time.monotonic()))
        part = connection.recv(1 << 16)
        if not part:
            raise OSError(errno.ECONNRESET, "it hung up")
        received += part
    return received
