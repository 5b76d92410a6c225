"""The daemon's own sockets, besides those for the kubelet: the admin socket, and metrics where they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.admin.server import AdminServer
from plugin.base.errors import os_reason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path
    from typing import Any

    from plugin.base.log import Logger
    from plugin.system.http.server import HttpServer


class AdminEndpoint:
    """Serves the admin socket on a path that may change."""

    def __init__(self, answer: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]], logger: Logger) -> None:
        self._answer = answer
        self._log = logger
        self._path: Path | None = None
        self._server: AdminServer | None = None

    async def serve(self, path: Path) -> None:
        """Serve on this path from now on; one that cannot be had is logged."""
        if path == self._path:
            return
        await self.close()
        self._path = path
        self._server = AdminServer(path, self._answer, self._log)
        try:
            await self._server.start()
        except OSError as error:
            problem = f"{path} cannot be served: {os_reason(error)}"
            self._log.warning(problem, hint="release and resume are followed all the same, but not at once")

    async def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            await self._server.close()
        self._server = self._path = None


class MetricsEndpoint:
    """Serves metrics on an address that may change; "" is off. `start` is called where there is one."""

    def __init__(self, start: Callable[[str], Awaitable[HttpServer]]) -> None:
        self._start = start
        self._address = ""
        self._server: HttpServer | None = None

    async def serve(self, address: str) -> None:
        """Serve on this address from now on."""
        if address == self._address:
            return
        await self.close()
        self._address = address
        if address:
            self._server = await self._start(address)

    async def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            await self._server.close()
        self._server, self._address = None, ""
