"""Serves over HTTP: bounded in size, time and number of clients, so that nobody can hold the process.

One answer a connection. Not here: which requests are answered, and with what (`HttpService`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, cast

from plugin.system.http.clients import Clients
from plugin.system.http.messages import HttpHead, HttpResponse, HTTPStatus, parse_head, say

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable
    from typing import Any

_MAX_HEAD_BYTES = 8192
_CHUNK_BYTES = 64 * 1024
_BACKLOG = 256


class HttpService(Protocol):
    """Who answers."""

    def expect(self, head: HttpHead, *, is_known: bool) -> int | HttpResponse:
        """Return how long the request's body is, or the answer where nothing more need be read.

        A client is known by its certificate, and where none is needed.
        """

    async def answer(self, head: HttpHead, body: bytes) -> HttpResponse:
        """Return the answer; it may take seconds, but not for ever."""

    def fail(self, error: Exception) -> HttpResponse:
        """Return the answer where `answer` raised."""


class HttpServer:
    """Serves a TCP address until closed, over TLS where there is a context for each connection that begins.

    `patience_s`: for a client to agree on TLS, to send its head, then its body, and to take its answer. `max_bytes` are
    held of all bodies that are not answered yet.
    """

    def __init__(
        self,
        service: HttpService,
        *,
        max_clients: int,
        max_bytes: int = 0,
        patience_s: float = 5.0,
        context: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._service = service
        self._patience_s = patience_s
        self._context = context
        self._server: asyncio.Server | None = None
        self._clients: Clients[asyncio.Task[object]] = Clients(max_clients, max_bytes)

    async def start(self, host: str, port: int) -> None:
        """Serve on an address of this machine, given in digits. Raises OSError."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=_MAX_HEAD_BYTES, backlog=_BACKLOG)

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports that are served, which an address with port 0 leaves to the kernel."""
        return () if self._server is None else tuple(each.getsockname()[1] for each in self._server.sockets)

    async def close(self, *, grace_s: float = 0.0) -> None:
        """Stop serving, give those that are being answered some time, and hang up."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        clients = self._clients.all()
        if clients and grace_s:
            await asyncio.wait(clients, timeout=grace_s)
        left = self._clients.all()
        for client in left:
            self._hang_up(client)
        if left:
            await asyncio.wait(left)

    def _hang_up(self, client: asyncio.Task[object]) -> None:
        self._clients.discard(client)
        client.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = cast("asyncio.Task[object]", asyncio.current_task())  # there always is one in a coroutine
        displaced = self._clients.add(client, writer.get_extra_info("peername")[0])
        if displaced is not None:
            displaced.cancel()
        try:
            if self._context is not None:
                # Not by start_server: it would hold any number of clients whose handshake never comes. Nothing may be
                # waited for before it, not even `wait_for`: what the client says first would be read without TLS.
                start_tls = cast("Any", writer).start_tls  # from Python 3.11 on, without which there is no identity
                await start_tls(self._context(), ssl_handshake_timeout=self._patience_s)
            is_known = self._context is None or bool(writer.get_extra_info("peercert"))
            answer = await self._reply(reader, client, is_known=is_known)
            if answer is not None:
                # Without a mark of its own, `drain` returns while up to 64 KiB wait for a client that never reads.
                writer.transport.set_write_buffer_limits(0)
                writer.write(answer.to_bytes())
                await asyncio.wait_for(writer.drain(), self._patience_s)
            writer.close()
        except (OSError, asyncio.TimeoutError):
            writer.transport.abort()  # a client that went, or does not read, misses nothing
        except asyncio.CancelledError:
            writer.transport.abort()  # hung up on by us; asyncio would report a cancelled handler as a fault
        finally:
            self._clients.discard(client)

    async def _reply(
        self, reader: asyncio.StreamReader, client: asyncio.Task[object], *, is_known: bool
    ) -> HttpResponse | None:
        """Return the answer, None for a client that went without a whole request, or has one without end."""
        try:
            head = parse_head(await self._take(reader.readuntil(b"\r\n\r\n"), client))
            if head is None:
                return say(HTTPStatus.BAD_REQUEST, "not a request of HTTP/1.1")
            length = self._service.expect(head, is_known=is_known)
            if isinstance(length, HttpResponse):
                return length
            body = await self._take(self._read(reader, length, client), client) if length else b""
        except asyncio.TimeoutError:
            return say(HTTPStatus.REQUEST_TIMEOUT, f"no request within {self._patience_s:g} s")
        except (asyncio.LimitOverrunError, asyncio.IncompleteReadError):
            return None
        self._clients.asked(client)
        try:
            return await self._service.answer(head, body)
        except Exception as error:  # noqa: BLE001 - one bad request must not end the process
            return self._service.fail(error)

    async def _take(self, reading: Awaitable[bytes], client: asyncio.Task[object]) -> bytes:
        """Return what is read in time; raises CancelledError where the client was hung up on.

        Before Python 3.12 `wait_for` forgets that when the bytes come at that moment.
        """
        taken = await asyncio.wait_for(reading, self._patience_s)
        if client not in self._clients:
            raise asyncio.CancelledError
        return taken

    async def _read(self, reader: asyncio.StreamReader, length: int, client: asyncio.Task[object]) -> bytes:
        """Return a body. What counts is what has come: a length alone costs nothing."""
        body = bytearray()
        while len(body) < length:
            chunk = await reader.read(min(_CHUNK_BYTES, length - len(body)))
            if not chunk:
                raise asyncio.IncompleteReadError(bytes(body), length)
            for other in self._clients.hold(client, len(chunk)):
                other.cancel()
            body += chunk
        return bytes(body)
