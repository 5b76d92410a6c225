"""The extender over HTTP, on the paths of gpushare: bounded in size, time and number of clients.

One answer a connection. Not here: what is answered (`extender`). Without TLS it trusts whoever can connect, which is
why it serves on a loopback address alone; with TLS whoever has a certificate, and anybody may ask whether it is ready.
What is held of requests is bounded, for every process in the host's network can connect.
"""

from __future__ import annotations

import asyncio
import json
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast
from urllib.parse import unquote

from plugin import __version__
from plugin.gpushare.bodies import Bodies
from plugin.publication.metrics.serving.clients import Clients
from plugin.publication.metrics.serving.request import PageResponse

if TYPE_CHECKING:
    from typing import Any

    from plugin.base.log import Logger
    from plugin.gpushare.identity import Identity

PREFIX = "/gpushare-scheduler"
_MAX_HEAD_BYTES = 8192
_MAX_BODY_BYTES = 8 * 1024 * 1024  # names of all nodes, or some hundred as a whole; parsed, it may take 30 times that
_MAX_BIND_BYTES = 16 * 1024  # four names
_MAX_HELD_BYTES = 32 * 1024 * 1024  # of all bodies that are not answered yet
_CHUNK_BYTES = 64 * 1024
_MAX_CLIENTS = 256  # a scheduler binds many pods at a time
_JSON = "application/json"
_FOR_ANYBODY = ("/healthz", "/version")
_REQUEST_LINE = re.compile(rb"([A-Z]{1,16}) (/[!-~]{0,1023}) HTTP/1\.[01]")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,12})[ \t]*\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)
_IS_JSON = re.compile(rb"\r\ncontent-type:[ \t]*application/json[ \t]*[;\r]", re.IGNORECASE)


class Handler(Protocol):
    """Who answers."""

    def filter(self, body: bytes) -> bytes:
        """Answer which nodes could have a pod; raises ValueError."""

    def preempt(self, body: bytes) -> bytes:
        """Answer on which nodes a pod would fit once others have left; raises ValueError."""

    async def bind(self, body: bytes) -> bytes:
        """Bind a pod; raises ValueError."""

    def inspect(self, name: str = "") -> dict[str, Any]:
        """Return who has what."""

    def problem(self) -> str:
        """Return why nothing can be judged, "" where it can."""


class Head(NamedTuple):
    """What a request begins with."""

    method: str
    path: str
    length: int


class ExtenderServer:
    """Serves until closed.

    `patience_s`: for a client to agree on TLS, to send its request, and again to take its answer. There is no TLS
    without an identity.
    """

    def __init__(
        self,
        handler: Handler,
        logger: Logger,
        *,
        patience_s: float = 5.0,
        identity: Identity | None = None,
    ) -> None:
        self._handler = handler
        self._log = logger
        self._patience_s = patience_s
        self._identity = identity
        self._server: asyncio.Server | None = None
        self._clients: Clients[asyncio.Task[object]] = Clients(_MAX_CLIENTS)
        self._bodies: Bodies[asyncio.Task[object]] = Bodies(_MAX_HELD_BYTES)

    async def start(self, host: str, port: int) -> int:
        """Serve on an address of this machine; return the port. Raises OSError."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=_MAX_HEAD_BYTES, backlog=_MAX_CLIENTS)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop serving, and give those that are being answered their time."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        clients = self._clients.all()
        if clients:
            await asyncio.wait(clients, timeout=self._patience_s)
        for client in self._clients.all():
            client.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = cast("asyncio.Task[object]", asyncio.current_task())  # there always is one in a coroutine
        displaced = self._clients.add(client, writer.get_extra_info("peername")[0])
        if displaced is not None:
            displaced.cancel()
        try:
            if self._identity is not None:
                # Not by start_server: it would hold any number of clients whose handshake never comes. Nothing may be
                # waited for before it, not even `wait_for`: what the client says first would be read without TLS.
                start_tls = cast("Any", writer).start_tls  # from Python 3.11 on, without which there is no identity
                await start_tls(self._identity.context(), ssl_handshake_timeout=self._patience_s)
            is_known = self._identity is None or bool(writer.get_extra_info("peercert"))
            answer = await self._reply(reader, client, is_known=is_known)
            if answer is not None:
                writer.transport.set_write_buffer_limits(0)
                writer.write(answer.to_bytes())
                await asyncio.wait_for(writer.drain(), self._patience_s)
            writer.close()
        except (OSError, asyncio.TimeoutError):
            writer.transport.abort()  # a client that went, or does not read
        except asyncio.CancelledError:
            writer.transport.abort()  # hung up on by us; asyncio would report a cancelled handler as a fault
        finally:
            self._clients.discard(client)
            self._bodies.discard(client)

    async def _reply(
        self, reader: asyncio.StreamReader, client: asyncio.Task[object], *, is_known: bool
    ) -> PageResponse | None:
        """Return the answer, None for a client that went without a whole request, or has one without end."""
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), self._patience_s)
            request = parse_head(head)
            if isinstance(request, PageResponse):
                return request
            if not is_known and request.path not in _FOR_ANYBODY:
                return _words(
                    HTTPStatus.FORBIDDEN, "a client certificate is needed: certFile of the scheduler's tlsConfig"
                )
            body = await asyncio.wait_for(self._read(reader, request.length, client), self._patience_s)
        except asyncio.TimeoutError:
            return _words(HTTPStatus.REQUEST_TIMEOUT, f"no request within {self._patience_s:g} s")
        except (asyncio.LimitOverrunError, asyncio.IncompleteReadError):
            return None
        if client not in self._clients:
            return None  # hung up on
        self._clients.asked(client)
        try:
            return await self._answer(request, body)
        except ValueError as error:
            return _words(HTTPStatus.BAD_REQUEST, str(error))
        except Exception as error:  # noqa: BLE001 - one bad request must not end the extender
            self._log.warning("bug in the extender", error=repr(error)[:256], hint="please report it")
            return _words(HTTPStatus.INTERNAL_SERVER_ERROR, "bug in the extender: see its log")

    async def _read(self, reader: asyncio.StreamReader, length: int, client: asyncio.Task[object]) -> bytes:
        """Return a body. What counts is what has come: a length alone costs nothing."""
        body = bytearray()
        while len(body) < length:
            chunk = await reader.read(min(_CHUNK_BYTES, length - len(body)))
            if not chunk:
                raise asyncio.IncompleteReadError(bytes(body), length)
            for other in self._bodies.hold(client, len(chunk)):
                self._clients.discard(other)
                other.cancel()
            body += chunk
        return bytes(body)

    async def _answer(self, request: Head, body: bytes) -> PageResponse:
        if request.method == "POST":
            if request.path == f"{PREFIX}/filter":
                return PageResponse(HTTPStatus.OK, self._handler.filter(body), _JSON)
            if request.path == f"{PREFIX}/preempt":
                return PageResponse(HTTPStatus.OK, self._handler.preempt(body), _JSON)
            return PageResponse(HTTPStatus.OK, await self._handler.bind(body), _JSON)
        if request.path == "/version":
            return _words(HTTPStatus.OK, __version__)
        if request.path == "/healthz":
            problem = self._handler.problem()
            return _words(HTTPStatus.SERVICE_UNAVAILABLE, problem) if problem else _words(HTTPStatus.OK, "ok")
        name = unquote(request.path[len(f"{PREFIX}/inspect") :]).strip("/")
        return PageResponse(HTTPStatus.OK, json.dumps(self._handler.inspect(name)).encode(), _JSON)


def parse_head(head: bytes) -> Head | PageResponse:
    """Return what is asked for, or the answer where nothing more need be read. `head` ends with an empty line."""
    match = _REQUEST_LINE.match(head)
    if match is None or not head.startswith(match[0] + b"\r\n"):
        return _words(HTTPStatus.BAD_REQUEST, "not a request of HTTP/1.1")
    method, path = match[1].decode(), match[2].partition(b"?")[0].decode()
    allowed = _method_of(path)
    if not allowed:
        return _words(
            HTTPStatus.NOT_FOUND, f"there are {PREFIX}/filter, /preempt, /bind, /inspect, and /version, /healthz"
        )
    if method != allowed:
        return PageResponse(HTTPStatus.METHOD_NOT_ALLOWED, f"only {allowed} is answered\n".encode(), allow=allowed)
    if method == "GET":
        return Head(method, path, 0)
    length = _LENGTH.search(head)
    if length is None or _CHUNKED.search(head):
        return _words(HTTPStatus.LENGTH_REQUIRED, "a Content-Length is needed")
    if int(length[1]) > (_MAX_BIND_BYTES if path == f"{PREFIX}/bind" else _MAX_BODY_BYTES):
        return _words(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "set nodeCacheCapable: true in the scheduler's configuration"
        )
    if not _IS_JSON.search(head):  # a page in somebody's browser cannot send this type
        return _words(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"Content-Type must be {_JSON}")
    return Head(method, path, int(length[1]))


def _method_of(path: str) -> str:
    if path in {f"{PREFIX}/{verb}" for verb in ("filter", "preempt", "bind")}:
        return "POST"
    is_inspect = path == f"{PREFIX}/inspect" or path.startswith(f"{PREFIX}/inspect/")
    return "GET" if is_inspect or path in {"/version", "/healthz"} else ""


def _words(status: HTTPStatus, words: str) -> PageResponse:
    return PageResponse(status, f"{words}\n".encode())
