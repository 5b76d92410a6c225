"""The daemon's end of the socket: bounded in size, time and number of requests."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from plugin.system.sockets import SocketIdentity, peer_of, socket_identity

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from plugin.base.log import Logger

_MAX_REQUEST_BYTES = 4096
_READ_S = 5.0
_MAX_REQUESTS = 16
_MAX_CLIENTS = 64  # who connects and says nothing must not use up the descriptors that the kubelet needs


class AdminServer:
    """Serves on a path until closed. `answer` gets a request and returns the answer."""

    def __init__(
        self, path: Path, answer: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]], logger: Logger
    ) -> None:
        self._path = path
        self._answer = answer
        self._log = logger
        self._server: asyncio.AbstractServer | None = None
        self._identity: SocketIdentity | None = None
        self._answering = 0
        self._clients: set[asyncio.Task[object]] = set()

    async def start(self) -> None:
        """Serve; a socket that a killed daemon left is replaced. Raises OSError.

        The socket is made under another name, closed to others, and only then moved to its own.
        """
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        beside = self._path.with_name(f".{self._path.name}.new")
        beside.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            listener.bind(str(beside))
            beside.chmod(0o600)
            self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=_MAX_REQUEST_BYTES)
            beside.rename(self._path)
        except OSError:
            listener.close()
            raise
        self._identity = socket_identity(self._path)

    async def close(self) -> None:
        """Stop serving, hang up, and remove the socket unless another daemon has put its own there."""
        if self._server is None:
            return
        self._server.close()
        if self._identity == socket_identity(self._path):
            with suppress(OSError):  # a file system that became read-only: the next daemon replaces it
                self._path.unlink(missing_ok=True)
        for client in self._clients:
            client.cancel()
        if self._clients:
            await asyncio.wait(set(self._clients))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= _MAX_CLIENTS:
            writer.transport.abort()
            return
        client = cast("asyncio.Task[object]", asyncio.current_task())  # there always is one in a coroutine
        self._clients.add(client)
        try:
            answer = await self._reply(reader, writer)
            writer.write(json.dumps(answer).encode() + b"\n")
            await asyncio.wait_for(writer.drain(), _READ_S)
        except (OSError, asyncio.TimeoutError):
            return  # a client that went, or does not read, misses nothing
        except asyncio.CancelledError:
            return  # hung up by `close`; asyncio would report a cancelled handler as a fault
        finally:
            self._clients.discard(client)
            writer.close()

    async def _reply(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> dict[str, Any]:
        try:
            # Read first, whoever asks: an answer to a client that still writes would be lost.
            line = await asyncio.wait_for(reader.readline(), _READ_S)
            request = json.loads(line)
            if not isinstance(request, dict):
                raise ValueError("not an object")  # noqa: TRY301 - one answer to everything that is no request
        except asyncio.TimeoutError:
            return {"error": f"no request within {_READ_S:g} s"}
        except (ValueError, RecursionError):
            return {"error": "a request is one json object on one line"}
        pid, uid = peer_of(writer.get_extra_info("socket"))
        if uid not in {0, os.geteuid()}:
            self._log.warning("a request was refused: not root", pid=pid, uid=uid)
            return {"error": "only root may ask"}
        if self._answering == _MAX_REQUESTS:
            return {"error": "too many requests at once"}
        self._answering += 1
        try:
            return await self._answer(request)
        except Exception as error:  # noqa: BLE001 - a client that hears nothing would take the daemon for dead
            self._log.warning("bug in an answer", request=request, error=repr(error))
            return {"error": f"bug in the daemon: {error!r}"}
        finally:
            self._answering -= 1
