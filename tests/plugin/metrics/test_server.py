"""The HTTP side over real connections of this machine."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from plugin.base.log import Logger
from plugin.publication.metrics.serving.endpoint import metrics_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from plugin.system.http.server import HttpServer

SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n"
PAGE = b"# HELP a b\n# TYPE a gauge\na 1\n"


async def page() -> bytes:
    return PAGE


@asynccontextmanager
async def serving(
    make: Callable[[], Awaitable[bytes]] = page, patience_s: float = 5.0
) -> AsyncIterator[tuple[HttpServer, int]]:
    server = metrics_server(make, Logger(), patience_s=patience_s)
    await server.start("127.0.0.1", 0)
    try:
        yield server, server.ports[0]
    finally:
        await server.close()
        await asyncio.sleep(0)  # for the transports to let go of their sockets


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def clients(server: HttpServer, count: int) -> None:
    """Wait until so many are served."""
    while len(server._clients) != count:  # noqa: ASYNC110 - the server tells nobody
        await asyncio.sleep(0.01)


async def exchange(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        await hang_up(writer)


def test_a_scrape_gets_the_page() -> None:
    async def scenario() -> bytes:
        async with serving() as (_, port):
            return await exchange(port, SCRAPE)

    head, _, body = asyncio.run(scenario()).partition(b"\r\n\r\n")
    assert body == PAGE
    assert head.splitlines()[0] == b"HTTP/1.1 200 OK"
    assert b"Content-Type: text/plain; version=0.0.4; charset=utf-8" in head.splitlines()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        pytest.param(b"GET /other HTTP/1.1\r\n\r\n", b"404", id="another page"),
        pytest.param(b"DELETE /metrics HTTP/1.1\r\n\r\n", b"405", id="another method"),
        pytest.param(b"\x00\r\n\r\n", b"400", id="no request"),
        pytest.param(b"GET /metrics HTTP/1.1\r\n", b"408", id="half a request and silence"),
    ],
)
def test_what_is_no_scrape_is_refused(request_: bytes, status: bytes) -> None:
    async def scenario() -> bytes:
        async with serving(patience_s=0.2) as (_, port):
            return await exchange(port, request_)

    assert asyncio.run(scenario()).split(b" ")[1] == status


def test_headers_without_end_are_not_read_to_their_end() -> None:
    async def scenario() -> bytes:
        async with serving() as (_, port):
            return await exchange(port, b"GET /metrics HTTP/1.1\r\n" + b"a: b\r\n" * 5000)

    assert asyncio.run(scenario()) == b""  # and not 408: nobody waited


def test_a_page_that_cannot_be_made_does_not_end_the_server() -> None:
    async def broken() -> bytes:
        raise RuntimeError("oops")

    async def scenario() -> list[bytes]:
        async with serving(broken) as (_, port):
            return [await exchange(port, SCRAPE) for _ in range(2)]

    assert [answer.split(b" ")[1] for answer in asyncio.run(scenario())] == [b"500", b"500"]


def test_clients_that_say_nothing_keep_nobody_out() -> None:
    async def scenario() -> bytes:
        async with serving(patience_s=60) as (server, port):
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
            await clients(server, 16)
            for reader, _ in silent[:24]:
                with suppress(ConnectionError):
                    assert await reader.read() == b"", "the oldest ones had to go"
            served = await exchange(port, SCRAPE)
            for _, writer in silent:
                await hang_up(writer)
            return served

    assert asyncio.run(asyncio.wait_for(scenario(), 20)).split(b" ")[1] == b"200"


def test_a_client_that_says_nothing_is_told_so_after_a_while() -> None:
    async def scenario() -> bytes:
        async with serving(patience_s=0.1) as (_, port):
            return await exchange(port, b"")

    assert asyncio.run(scenario()).split(b" ")[1] == b"408"


@pytest.mark.slow
@pytest.mark.parametrize("request_", [b"", SCRAPE], ids=["say nothing", "never read"])
def test_a_scraper_keeps_its_place_while_another_machine_opens_connections(request_: bytes) -> None:
    async def large() -> bytes:
        return b"a" * (8 << 20)

    async def scenario() -> tuple[bytes, bytes]:
        async with serving(large, patience_s=60) as (_, port):
            reader, scraper = await asyncio.open_connection("127.0.0.1", port)
            greedy = []
            for _ in range(40):
                _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
                writer.transport.pause_reading()
                writer.write(request_)
                greedy.append(writer)
                await asyncio.sleep(0)
            scraper.write(SCRAPE)
            slow, quick = await reader.read(), await exchange(port, SCRAPE)
            for writer in (scraper, *greedy):
                writer.transport.abort()
            return slow, quick

    for answer in asyncio.run(asyncio.wait_for(scenario(), 60)):
        assert answer.split(b" ", 2)[1] == b"200"


@pytest.mark.slow
def test_a_client_that_does_not_read_is_hung_up_on() -> None:
    async def large() -> bytes:
        return b"a" * (64 << 20)  # more than the kernel keeps for both ends

    async def scenario() -> int:
        async with serving(large, patience_s=0.2) as (server, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.transport.pause_reading()
            writer.write(SCRAPE)
            await clients(server, 1)
            await clients(server, 0)
            await hang_up(writer)
            return len(server._clients)

    assert asyncio.run(asyncio.wait_for(scenario(), 20)) == 0


def test_closing_hangs_up_on_everybody() -> None:
    async def never() -> bytes:
        await asyncio.Event().wait()
        return b""

    async def scenario() -> tuple[bytes, bytes]:
        async with serving(never) as (server, port):
            waiting = asyncio.ensure_future(exchange(port, SCRAPE))
            silent = asyncio.ensure_future(exchange(port, b""))
            await clients(server, 2)
            await server.close()
            return await waiting, await silent

    assert asyncio.run(asyncio.wait_for(scenario(), 20)) == (b"", b"")


@pytest.mark.parametrize("rounds", range(8))
def test_closing_is_not_missed_by_a_client_whose_request_comes_at_that_moment(rounds: int) -> None:
    async def never() -> bytes:
        await asyncio.Event().wait()
        return b""

    async def scenario() -> None:
        async with serving(never) as (server, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            await clients(server, 1)
            writer.write(SCRAPE)
            for _ in range(rounds):  # of the loop: one of these numbers is the moment
                await asyncio.sleep(0)
            await server.close()
            await hang_up(writer)

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_an_address_that_is_taken_is_an_error_of_the_system() -> None:
    async def scenario() -> None:
        async with serving() as (_, port):
            await metrics_server(page, Logger()).start("127.0.0.1", port)

    with pytest.raises(OSError, match="in use"):
        asyncio.run(scenario())
