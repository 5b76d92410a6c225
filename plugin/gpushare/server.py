"""The extender over HTTP, on the paths of gpushare until SIGTERM: which requests are answered, by which call of it.

Not here: what is answered (`extender`), and how nobody can hold it (`plugin.system.http`). Without TLS it trusts
whoever can connect, which is why it serves on a loopback address alone; with TLS whoever has a certificate, and anybody
may ask whether it is ready. What is held of requests is bounded, for every process in the host's network can connect.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import signal
from typing import TYPE_CHECKING
from urllib.parse import unquote

from plugin import __version__
from plugin.base.errors import ConfigError, os_reason
from plugin.gpushare.extender import Extender
from plugin.settings.node_config import split_address
from plugin.system.http.messages import HttpResponse, HTTPStatus, say
from plugin.system.http.server import HttpServer

if TYPE_CHECKING:
    from plugin.base.log import Logger
    from plugin.gpushare.connections import Connections
    from plugin.gpushare.identity import Identity
    from plugin.system.http.messages import HttpHead

PREFIX = "/gpushare-scheduler"
PATIENCE_S = 5.0
_FILTER, _PREEMPT, _BIND, _INSPECT = (f"{PREFIX}/{verb}" for verb in ("filter", "preempt", "bind", "inspect"))
_VERSION, _HEALTH = "/version", "/healthz"  # for anybody
_MAX_BODY_BYTES = 8 * 1024 * 1024  # names of all nodes, or some hundred as a whole; parsed, it may take 30 times that
_MAX_BIND_BYTES = 16 * 1024  # four names
_MAX_HELD_BYTES = 32 * 1024 * 1024  # of all bodies that are not answered yet
_MAX_CLIENTS = 256  # a scheduler binds many pods at a time
_MAX_DIGITS = 12  # of a length
_JSON = "application/json"


class ExtenderService:
    """Answers with what the extender says."""

    def __init__(self, extender: Extender, logger: Logger) -> None:
        self._extender = extender
        self._log = logger

    def expect(self, head: HttpHead, *, is_known: bool) -> int | HttpResponse:
        """Return the length of a body, or the answer where nothing more need be read."""
        length = length_of(head)
        if not isinstance(length, HttpResponse) and not is_known and head.path not in {_VERSION, _HEALTH}:
            return say(HTTPStatus.FORBIDDEN, "a client certificate is needed: certFile of the scheduler's tlsConfig")
        return length

    async def answer(self, head: HttpHead, body: bytes) -> HttpResponse:
        """Ask the extender; raises ValueError for a body that is none of its questions."""
        if head.path == _FILTER:
            return HttpResponse(HTTPStatus.OK, self._extender.filter(body), _JSON)
        if head.path == _PREEMPT:
            return HttpResponse(HTTPStatus.OK, self._extender.preempt(body), _JSON)
        if head.path == _BIND:
            return HttpResponse(HTTPStatus.OK, await self._extender.bind(body), _JSON)
        if head.path == _VERSION:
            return say(HTTPStatus.OK, __version__)
        if head.path == _HEALTH:
            problem = self._extender.problem()
            return say(HTTPStatus.SERVICE_UNAVAILABLE, problem) if problem else say(HTTPStatus.OK, "ok")
        name = unquote(head.path[len(_INSPECT) :]).strip("/")
        return HttpResponse(HTTPStatus.OK, json.dumps(self._extender.inspect(name)).encode(), _JSON)

    def fail(self, error: Exception) -> HttpResponse:
        """Say what is wrong with a question, or that the extender has a bug."""
        if isinstance(error, ValueError):
            return say(HTTPStatus.BAD_REQUEST, str(error))
        self._log.warning("bug in the extender", error=repr(error)[:256], hint="please report it")
        return say(HTTPStatus.INTERNAL_SERVER_ERROR, "bug in the extender: see its log")


def length_of(head: HttpHead) -> int | HttpResponse:
    """Return how long the body of a request is, or why it is not read."""
    allowed = _method_of(head.path)
    if not allowed:
        return say(
            HTTPStatus.NOT_FOUND, f"there are {PREFIX}/filter, /preempt, /bind, /inspect, and /version, /healthz"
        )
    if head.method != allowed:
        return say(HTTPStatus.METHOD_NOT_ALLOWED, f"only {allowed} is answered", allow=allowed)
    if allowed == "GET":
        return 0
    length = head.field("content-length") or ""
    is_length = length.isascii() and length.isdigit() and len(length) <= _MAX_DIGITS
    if not is_length or head.field("transfer-encoding") is not None:
        return say(HTTPStatus.LENGTH_REQUIRED, "a Content-Length is needed")
    if int(length) > (_MAX_BIND_BYTES if head.path == _BIND else _MAX_BODY_BYTES):
        return say(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "set nodeCacheCapable: true in the scheduler's configuration")
    if (head.field("content-type") or "").partition(";")[0].rstrip().lower() != _JSON:
        # A page in a browser cannot send this type.
        return say(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"Content-Type must be {_JSON}")
    return int(length)


def _method_of(path: str) -> str:
    if path in {_FILTER, _PREEMPT, _BIND}:
        return "POST"
    return "GET" if path in {_INSPECT, _VERSION, _HEALTH} or path.startswith(f"{_INSPECT}/") else ""


def extender_server(
    extender: Extender, logger: Logger, *, patience_s: float = PATIENCE_S, identity: Identity | None = None
) -> HttpServer:
    """Return who serves the extender, over TLS where there is an identity."""
    return HttpServer(
        ExtenderService(extender, logger),
        max_clients=_MAX_CLIENTS,
        max_bytes=_MAX_HELD_BYTES,
        patience_s=patience_s,
        context=identity.context if identity else None,
    )


def loopback(address: str) -> tuple[str, int]:
    """Return host and port of an address that only this machine reaches; raises ConfigError."""
    hint = "run it beside each kube-scheduler, as in deploy/gpushare: whoever reaches it can bind pods"
    try:
        host, port = split_address(address)
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError as error:
        raise ConfigError(f"{address}: not an address and a port", "such as 127.0.0.1:32766") from error
    if not is_loopback:
        raise ConfigError(f"{address} can be reached from other machines", hint)
    return host, port


async def run_extender(
    address: str, identity: Identity | None, resource: str, connections: Connections, logger: Logger
) -> None:
    """Serve until SIGTERM or SIGINT, then close the connections; raises ConfigError."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    host, port = loopback(address)
    extender = Extender(connections, resource, logger)
    server = extender_server(extender, logger, identity=identity)
    try:
        await server.start(host, port)
    except OSError as error:
        problem = f"{address} cannot be served: {os_reason(error)}"
        raise ConfigError(problem, "free the address, or name another one with --listen") from error
    extender.start()
    logger.info("gpushare extender", address=address, resource=resource, clients="known" if identity else "any")
    await stop.wait()
    logger.info("stopping")
    await server.close(grace_s=PATIENCE_S)
    await extender.stop()
    connections.close()
