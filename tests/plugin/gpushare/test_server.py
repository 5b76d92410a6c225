"""HTTP: what is read of a request, what is refused, and that nobody can hold the extender."""

from __future__ import annotations

import asyncio
import contextlib
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

import pytest

from plugin.base.log import Logger
from plugin.gpushare.server import PREFIX, extender_server, length_of
from plugin.system.http.messages import HttpResponse, parse_head
from tests.plugin.gpushare.stage import Scheduler

if TYPE_CHECKING:
    from plugin.gpushare.extender import Extender
    from plugin.system.http.server import HttpServer

POST = f"POST {PREFIX}/filter HTTP/1.1"
JSON = "Content-Type: application/json"


class Deaf:
    """Answers what it is told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def filter(self, body: bytes) -> bytes:
        if self.error is not None:
            raise self.error
        return body

    def preempt(self, body: bytes) -> bytes:
        return self.filter(body)

    async def bind(self, body: bytes) -> bytes:
        return self.filter(body)

    def inspect(self, name: str = "") -> dict[str, Any]:
        return {"asked": name}

    def problem(self) -> str:
        return ""


def head(*lines: str) -> bytes:
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param((POST, JSON, "Content-Length: 12"), 12, id="filter"),
        pytest.param(
            (POST, "content-type: application/json; charset=utf-8", "content-length:3"), 3, id="small letters"
        ),
        pytest.param((f"GET {PREFIX}/inspect/n1?x=1 HTTP/1.1",), 0, id="inspect"),
        pytest.param(("hello",), HTTPStatus.BAD_REQUEST, id="not HTTP"),
        pytest.param((f"{POST}2", JSON), HTTPStatus.BAD_REQUEST, id="another version"),
        pytest.param(("GET /metrics HTTP/1.1",), HTTPStatus.NOT_FOUND, id="another path"),
        pytest.param((f"GET {PREFIX}/inspector HTTP/1.1",), HTTPStatus.NOT_FOUND, id="a longer path"),
        pytest.param((f"GET {PREFIX}/bind HTTP/1.1",), HTTPStatus.METHOD_NOT_ALLOWED, id="get of a verb"),
        pytest.param(("POST /version HTTP/1.1", JSON), HTTPStatus.METHOD_NOT_ALLOWED, id="post of a page"),
        pytest.param((POST, JSON), HTTPStatus.LENGTH_REQUIRED, id="no length"),
        pytest.param(
            (POST, JSON, "Content-Length: 1", "Transfer-Encoding: chunked"), HTTPStatus.LENGTH_REQUIRED, id="chunked"
        ),
        pytest.param((POST, JSON, "Content-Length: 99999999"), HTTPStatus.REQUEST_ENTITY_TOO_LARGE, id="too large"),
        pytest.param(
            (f"POST {PREFIX}/bind HTTP/1.1", JSON, "Content-Length: 99999"),
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            id="too large for four names",
        ),
        pytest.param(
            (POST, "Content-Type: text/plain", "Content-Length: 1"), HTTPStatus.UNSUPPORTED_MEDIA_TYPE, id="from a page"
        ),
    ],
)
def test_heads(lines: tuple[str, ...], expected: int) -> None:
    parsed = parse_head(head(*lines))
    found = HTTPStatus.BAD_REQUEST if parsed is None else length_of(parsed)
    assert (found.status if isinstance(found, HttpResponse) else found) == expected


async def served(handler: Deaf, patience_s: float = 5.0) -> tuple[HttpServer, Scheduler]:
    server = extender_server(cast("Extender", handler), Logger(), patience_s=patience_s)
    await server.start("127.0.0.1", 0)
    return server, Scheduler(server.ports[0])


@pytest.mark.parametrize(
    ("error", "status"),
    [
        pytest.param(ValueError("Pod is missing"), 400, id="a bad question"),
        pytest.param(KeyError("bug"), 500, id="a bug"),
    ],
)
def test_one_bad_request_does_not_end_the_server(error: Exception, status: int) -> None:
    async def run() -> None:
        handler = Deaf(error)
        server, scheduler = await served(handler)
        assert (await scheduler.ask("POST", f"{PREFIX}/filter", {}))[0] == status
        handler.error = None
        assert await scheduler.ask("POST", f"{PREFIX}/bind", {"a": 1}) == (200, b'{"a": 1}')
        assert await scheduler.ask("GET", f"{PREFIX}/inspect/n%2F1") == (200, b'{"asked": "n/1"}')
        await server.close()

    asyncio.run(run())


def test_clients_that_say_nothing_are_hung_up_on() -> None:
    async def run() -> None:
        server, scheduler = await served(Deaf(), patience_s=0.1)
        reader, writer = await asyncio.open_connection("127.0.0.1", scheduler.port)
        assert b"408" in await reader.read()
        writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", scheduler.port)
        writer.write(head(POST, JSON, "Content-Length: 5") + b"four")
        assert b"408" in await reader.read()
        writer.close()
        await server.close()

    asyncio.run(run())


def test_a_scheduler_gets_in_past_hundreds_of_silent_clients() -> None:
    async def run() -> None:
        server, scheduler = await served(Deaf())
        silent = [await asyncio.open_connection("127.0.0.1", scheduler.port) for _ in range(300)]
        assert (await scheduler.ask("GET", "/version"))[0] == 200
        for _, writer in silent:
            writer.close()
        await server.close()

    asyncio.run(run())


def test_what_is_held_of_many_large_requests_is_bounded_and_a_small_one_gets_in() -> None:
    """All of them could be held before, 256 times 32 MiB."""
    size, count, most = 8 * 1024 * 1024, 12, 32 * 1024 * 1024

    async def run() -> None:
        server, scheduler = await served(Deaf(), patience_s=60.0)
        clients = [await asyncio.open_connection("127.0.0.1", scheduler.port) for _ in range(count)]
        for _, writer in clients:
            writer.write(head(POST, JSON, f"Content-Length: {size}") + bytes(size - 1))
            with contextlib.suppress(OSError):
                await writer.drain()
        assert await scheduler.ask("POST", f"{PREFIX}/filter", {"a": 1}) == (200, b'{"a": 1}')
        answers = []
        for reader, writer in clients:
            with contextlib.suppress(OSError):  # hung up on
                writer.write(b"}")
                answers.append(await reader.read())
            writer.close()
        assert 0 < sum(b" 200 " in answer[:20] for answer in answers) <= most // size
        await server.close()

    asyncio.run(run())
