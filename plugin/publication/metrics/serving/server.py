"""The page over HTTP. Not here: what is on it (`scrape`), and how nobody can hold the daemon (`plugin.system.http`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.publication.metrics.exposition import CONTENT_TYPE
from plugin.system.http.messages import HttpResponse, HTTPStatus, say
from plugin.system.http.server import HttpLimits, HttpServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from plugin.base.log import Logger
    from plugin.system.http.messages import HttpHead

PATH = "/metrics"
_MAX_CLIENTS = 16


class MetricsService:
    """Answers with the page that `page` makes. A request has no body that would be read."""

    def __init__(self, page: Callable[[], Awaitable[bytes]], logger: Logger) -> None:
        self._page = page
        self._log = logger

    def expect(self, head: HttpHead, *, is_known: bool = True) -> int | HttpResponse:  # noqa: ARG002 - metrics are for anybody
        """Return why a request is not answered with the page, 0 where it is."""
        if head.method != "GET":
            return say(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is answered", allow="GET")
        if head.path != PATH:
            return say(HTTPStatus.NOT_FOUND, f"there is only {PATH}")
        return 0

    async def answer(self, head: HttpHead, body: bytes) -> HttpResponse:  # noqa: ARG002 - there is one page
        """Return the page."""
        return HttpResponse(HTTPStatus.OK, await self._page(), CONTENT_TYPE)

    def fail(self, error: Exception) -> HttpResponse:
        """Say that the page could not be made, here and in the log."""
        self._log.standing("metrics", f"bug in the metrics: {error!r}")
        return say(HTTPStatus.INTERNAL_SERVER_ERROR, "bug in the daemon: see its log")


def metrics_server(page: Callable[[], Awaitable[bytes]], logger: Logger, *, patience_s: float = 5.0) -> HttpServer:
    """Return who serves the page; `page` may take seconds, but not for ever."""
    return HttpServer(MetricsService(page, logger), HttpLimits(_MAX_CLIENTS, patience_s=patience_s))
