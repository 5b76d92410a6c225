"""Serves calls on a unix socket: who may connect, how many, how long a call may take.

A method is declared with the class of its request and a coroutine that answers; an answer is a message,
an error is a `CallError`. Not here: any method, and when to serve (`plugin.kubelet`).
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.kubelet.rpc.connection import Limits
from plugin.kubelet.rpc.serving import Owner, ServerConnection
from plugin.system.sockets import peer_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugin.base.log import Logger
    from plugin.kubelet.rpc.serving import Method

_BACKLOG = 128


class Server:
    """Serves `methods` by path ("/package.Service/Method") to root and the own user, from `start` to one `stop`."""

    def __init__(self, methods: Mapping[str, Method], logger: Logger, limits: Limits | None = None) -> None:
        self._methods = methods
        self._log = logger
        self._limits = limits or Limits()
        self._listener: asyncio.AbstractServer | None = None
        self._connections: dict[ServerConnection, None] = {}  # in the order in which they came
        self._owner = Owner(self._admit, self._end_others, self._forget)
        self._is_stopped = False
        self._is_empty = asyncio.Event()  # after a stop

    @property
    def open_connections(self) -> int:
        """How many peers are connected."""
        return len(self._connections)

    @property
    def live_connections(self) -> int:
        """How many of them have a stream, or may still open one."""
        return sum(not each.is_over for each in self._connections)

    async def start(self, path: str) -> None:
        """Serve on a new socket; one that was left behind is replaced. Raises OSError.

        A second start takes another socket instead of the first; connections stay as they are.
        """
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            _remove_stale(path)
            listener.bind(path)
            listener.listen(_BACKLOG)  # at once: a client may have waited for the name to appear
            loop = asyncio.get_running_loop()
            if sys.version_info >= (3, 13):  # whose socket has the name by then is not asyncio's to decide
                self._listener = await loop.create_unix_server(
                    self._accept, sock=listener, backlog=_BACKLOG, cleanup_socket=False
                )
            else:
                self._listener = await loop.create_unix_server(self._accept, sock=listener, backlog=_BACKLOG)
        except OSError:
            listener.close()
            raise

    async def stop(self, grace_s: float) -> None:
        """End every call within `grace_s` and hang up. The socket's name stays; whoever owns the folder removes it."""
        self._is_stopped = True
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace_s
        calls = {task for connection in self._connections for task in connection.retire()}
        if calls and grace_s > 0:
            await asyncio.wait(calls, timeout=grace_s)
        for connection in tuple(self._connections):
            connection.close("the server stops")
        await self._wait_for_readers(deadline - loop.time())
        for connection in tuple(self._connections):
            connection.abort("the server stops")
        if calls:
            await asyncio.wait(calls)

    async def _wait_for_readers(self, timeout_s: float) -> None:
        """Wait until every connection has taken what was sent, and is gone."""
        if self._connections and timeout_s > 0:
            timer = asyncio.get_running_loop().call_later(timeout_s, self._is_empty.set)
            await self._is_empty.wait()
            timer.cancel()

    def _accept(self) -> ServerConnection:
        return ServerConnection(self._methods, self._log, self._limits, self._owner)

    def _admit(self, connection: ServerConnection, found: socket.socket) -> bool:
        """Decide about a new connection; an idle one is closed for it."""
        if self._is_stopped:
            return False
        pid, uid = peer_of(found)
        if uid not in {0, os.geteuid()}:
            self._log.warning("a connection was refused: not root", pid=pid, uid=uid)
            return False
        if len(self._connections) >= self._limits.connections:
            idle = next((each for each in self._connections if each.is_idle), None)
            if idle is None:
                self._log.warning("a connection was refused: too many are in use", pid=pid)
                return False
            idle.close("others need the place")
        self._connections[connection] = None
        return True

    def _end_others(self, connection: ServerConnection) -> None:
        """Hang up on those whose stream has ended, as there is another.

        A kubelet that hears of a registration before it has noticed the end of the stream before never uses the older
        connection again, but keeps it until it restarts (`clients` in pkg/kubelet/cm/devicemanager/plugin/v1beta1).
        """
        for each in tuple(self._connections):
            if each is not connection and each.is_over:
                each.close("there is another stream")

    def _forget(self, connection: ServerConnection) -> None:
        self._connections.pop(connection, None)
        if self._is_stopped and not self._connections:
            self._is_empty.set()


def _remove_stale(path: str) -> None:
    """Remove a socket that has the name; anything else stays, and binding fails."""
    try:
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            Path(path).unlink()
    except FileNotFoundError:
        pass
