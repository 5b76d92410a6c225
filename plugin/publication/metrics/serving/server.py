"""Serves the page over HTTP: bounded in size, time and number of clients, so that nobody can hold the daemon.

One answer a connection. Not here: what is on the page, and which requests get it (`request`).
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, cast

from plugin.publication.metrics.exposition import CONTENT_TYPE
from plugin.publication.metrics.serving.clients import Clients
from plugin.publication.metrics.serving.request import PageResponse, refusal, refuse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from plugin.base.log import Logger

_MAX_HEAD_BYTES = 8192
_MAX_CLIENTS = 16


class MetricsServer:
    """Serves on a TCP address until closed. `page` makes the page; it may take seconds, but not for ever."""

    def __init__(self, page: Callable[[], Awaitable[bytes]], logger: Logger, *, patience_s: float = 5.0) -> None:
        self._page = page
        self._log = logger
        self._patience_s = patience_s  # for a client to send its request, and again to take its answer
        self._server: asyncio.Server | None = None
        self._clients: Clients[asyncio.Task[object]] = Clients(_MAX_CLIENTS)

    async def start(self, host: str, port: int) -> None:
        """Serve on an address of this machine, given in digits. Raises OSError."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=_MAX_HEAD_BYTES)

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports that are served, which an address with port 0 leaves to the kernel."""
        return () if self._server is None else tuple(each.getsockname()[1] for each in self._server.sockets)

    async def close(self) -> None:
        """Stop serving and hang up."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        clients = self._clients.all()
        for client in clients:
            self._clients.discard(client)
            client.cancel()
        if clients:
            await asyncio.wait(clients)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = cast("asyncio.Task[object]", asyncio.current_task())  # there always is one in a coroutine
        displaced = self._clients.add(client, writer.get_extra_info("peername")[0])
        if displaced is not None:
            displaced.cancel()
        try:
            answer = await self._reply(reader, client)
            if answer is not None:
                # Without a mark of its own, `drain` returns while up to 64 KiB wait for a client that never reads.
                writer.transport.set_write_buffer_limits(0)
                writer.write(answer.to_bytes())
                await asyncio.wait_for(writer.drain(), self._patience_s)
            writer.close()
        except (OSError, asyncio.TimeoutError):
            writer.transport.abort()  # a client that went, or does not read, is nobody's loss
        except asyncio.CancelledError:
            writer.transport.abort()  # hung up on by us; asyncio would report a cancelled handler as a fault
        finally:
            self._clients.discard(client)

    async def _reply(self, reader: asyncio.StreamReader, client: asyncio.Task[object]) -> PageResponse | None:
        """Return the answer, None for a client that went without a whole request, or has one without end."""
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), self._patience_s)
        except asyncio.TimeoutError:
            return refusal(HTTPStatus.REQUEST_TIMEOUT, f"no request within {self._patience_s:g} s")
        except (asyncio.LimitOverrunError, asyncio.IncompleteReadError):
            return None
        if client not in self._clients:
            return None  # hung up on: before Python 3.12 `wait_for` forgets that when the head comes at that moment
        self._clients.asked(client)
        refused = refuse(head)
        if refused is not None:
            return refused
        try:
            return PageResponse(HTTPStatus.OK, await self._page(), CONTENT_TYPE)
        except Exception as error:  # noqa: BLE001 - metrics that cannot be made must not end the daemon
            self._log.standing("metrics", f"bug in the metrics: {error!r}")
            return refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "bug in the daemon: see its log")
