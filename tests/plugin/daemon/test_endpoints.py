"""Sockets of the daemon's own that may move while it runs."""

from __future__ import annotations

import asyncio
import stat
from typing import TYPE_CHECKING, Any, cast

from plugin.base.log import Logger
from plugin.daemon.endpoints import AdminEndpoint, MetricsEndpoint
from tests.plugin.node_object.written_log import WrittenLog

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.system.http.server import HttpServer


async def answer(_: dict[str, Any]) -> dict[str, Any]:
    return {}


def is_served(path: Path) -> bool:
    return path.exists() and stat.S_ISSOCK(path.stat().st_mode)


def test_an_admin_socket_moves_and_goes(tmp_path: Path) -> None:
    first, second = tmp_path / "run/a.sock", tmp_path / "run/b.sock"

    async def move() -> None:
        endpoint = AdminEndpoint(answer, Logger())
        await endpoint.serve(first)
        inode = first.stat().st_ino
        await endpoint.serve(first)
        assert first.stat().st_ino == inode
        await endpoint.serve(second)
        assert (is_served(first), is_served(second)) == (False, True)
        await endpoint.close()
        assert not is_served(second)

    asyncio.run(move())


def test_an_admin_socket_that_cannot_be_had_is_logged_and_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    log = WrittenLog()

    async def serve() -> None:
        endpoint = AdminEndpoint(answer, log)
        await endpoint.serve(tmp_path / "file/node.sock")
        await endpoint.close()

    asyncio.run(serve())
    assert len(log.lines("cannot be served")) == 1


class Server:
    """A server of metrics that notes its end."""

    def __init__(self, address: str, events: list[str]) -> None:
        self._address = address
        self._events = events
        events.append(f"start {address}")

    async def close(self) -> None:
        self._events.append(f"close {self._address}")


def test_metrics_are_started_where_there_is_an_address_and_moved_with_it() -> None:
    events: list[str] = []

    async def start(address: str) -> HttpServer:
        return cast("HttpServer", Server(address, events))

    async def move() -> None:
        endpoint = MetricsEndpoint(start)
        for address in ("", "127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:2", ""):
            await endpoint.serve(address)
        await endpoint.close()

    asyncio.run(move())
    assert events == ["start 127.0.0.1:1", "close 127.0.0.1:1", "start 127.0.0.1:2", "close 127.0.0.1:2"]
