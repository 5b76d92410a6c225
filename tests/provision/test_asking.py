"""Whoever is asked has so long, and may say so much; a byte now and then resets no clock."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import socket
import ssl
import threading
from typing import TYPE_CHECKING

import pytest

from provision.base.asking import Deadline, Question, Response, TooLongError, ask, https_proxy
from tests import peers

if TYPE_CHECKING:
    from tests.peers import Behave


def question(port: int, *, scheme: str = "http", **more: object) -> Question:
    fields = {"method": "GET", "url": f"{scheme}://127.0.0.1:{port}/x", "deadline_s": 0.5, "most_bytes": 1000, **more}
    return Question(**fields)  # type: ignore[arg-type]  # fields by name


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return what a server has, and what trusts it."""
    cert, key = peers.certificate(tmp_path_factory.mktemp("tls"))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)
    return server, ssl.create_default_context(cafile=cert)


@pytest.mark.parametrize("behave", peers.ENDLESS.values(), ids=peers.ENDLESS)
def test_an_answer_without_end_is_given_up(behave: Behave) -> None:
    with peers.peer(behave) as port, pytest.raises(TimeoutError):
        ask(question(port, most_bytes=10_000_000))


@pytest.mark.parametrize("behave", [peers.ENDLESS["headers"], peers.ENDLESS["body"]], ids=["headers", "body"])
def test_so_it_is_over_tls(behave: Behave, tls: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    with peers.peer(behave, tls[0]) as port, pytest.raises(TimeoutError):
        ask(question(port, scheme="https", tls=tls[1]))


def test_a_handshake_without_end_is_given_up() -> None:
    with peers.peer(peers.silent) as port, pytest.raises(TimeoutError):
        ask(question(port, scheme="https"))


def silent_behind_it(client: socket.socket, closed: threading.Event) -> None:
    """Be a proxy that connects at once, to somebody whose handshake never ends."""
    peers.request_of(client)
    client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    client.recv(65536)
    peers.silent(client, closed)


@pytest.mark.parametrize(
    "behave",
    [
        pytest.param(peers.dripping(b"HTTP/1.1 200 "), id="status line"),
        pytest.param(peers.dripping(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n", every_s=0.05), id="headers"),
        pytest.param(silent_behind_it, id="TLS behind it"),
    ],
)
def test_a_proxy_without_end_is_given_up(behave: Behave, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with peers.peer(behave) as port:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        with pytest.raises(TimeoutError):
            ask(question(443, scheme="https", url="https://elsewhere.example/x", uses_proxy=True))


def test_a_proxy_is_told_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[bytes] = []

    def behave(client: socket.socket, _closed: threading.Event) -> None:
        heads.append(peers.request_of(client))
        client.sendall(b"HTTP/1.1 403 No\r\n\r\n")

    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with peers.peer(behave) as port:
        monkeypatch.setenv("https_proxy", f"127.0.0.1:{port}")
        with pytest.raises(OSError, match="403"):
            ask(question(443, url="https://elsewhere.example/x", uses_proxy=True, deadline_s=30.0))
        monkeypatch.setenv("https_proxy", f"http://me:p%40ss@127.0.0.1:{port}")
        with pytest.raises(OSError, match="403"):
            ask(question(443, url="https://elsewhere.example/x", uses_proxy=True, deadline_s=30.0))

    assert [head.partition(b" HTTP/")[0] for head in heads] == [b"CONNECT elsewhere.example:443"] * 2
    assert [b"Proxy-Authorization: Basic bWU6cEBzcw==\r\n" in head for head in heads] == [False, True]


@pytest.mark.parametrize("scheme", ["https", "socks5", "socks5h", "HTTPS"])
def test_a_proxy_that_is_not_spoken_to_in_http_is_sent_no_password_in_the_clear(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONNECT went to a proxy of https:// without TLS, and the password in https_proxy with it."""
    heads: list[bytes] = []
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with peers.peer(lambda client, _closed: heads.append(client.recv(65536))) as port:
        monkeypatch.setenv("https_proxy", f"{scheme}://me:secret@127.0.0.1:{port}")
        with pytest.raises(OSError, match=r"only http://HOST:PORT is supported$"):
            ask(question(443, url="https://elsewhere.example/x", uses_proxy=True, deadline_s=30.0))

    assert heads == []


def test_a_proxy_is_not_asked_for_another_host_than_an_ipv6_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an address without a port the proxy was asked for its first parts, at its last part as port."""
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "elsewhere.example")
    with pytest.raises(OSError, match=r"add 2001:db8::1 to no_proxy$"):
        ask(question(443, url="https://[2001:db8::1]/x", uses_proxy=True))
    monkeypatch.setenv("no_proxy", "elsewhere.example,2001:db8::1")
    assert https_proxy("2001:db8::1") is None


@pytest.mark.parametrize(
    "behave",
    [
        peers.flooding(peers.HEAD + b"\r\n"),
        peers.flooding(peers.HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b"x" * 65536 + b"\r\n"),
        peers.saying(peers.HEAD + b"Content-Length: 1001\r\n\r\n" + b"x" * 1001),
    ],
    ids=["until the end", "chunks", "a byte too many"],
)
def test_a_flood_is_not_taken(behave: Behave) -> None:
    with peers.peer(behave) as port, pytest.raises(TooLongError):
        ask(question(port, deadline_s=30.0))


@pytest.mark.parametrize(
    "behave",
    [
        peers.flooding(peers.HEAD + b"X: "),
        peers.flooding(peers.HEAD, b"X: y\r\n" * 1000),
        peers.flooding(peers.HEAD + b"Transfer-Encoding: chunked\r\n\r\n"),
    ],
    ids=["a header", "headers", "size of a chunk"],
)
def test_a_flood_before_the_body_is_no_answer(behave: Behave) -> None:
    with peers.peer(behave) as port, pytest.raises((http.client.HTTPException, ConnectionError)):
        ask(question(port, deadline_s=30.0))


def test_what_is_packed_is_not_unpacked() -> None:
    packed = gzip.compress(b"x" * 2**20)
    answer = peers.HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed
    with peers.peer(peers.saying(answer)) as port:
        assert ask(question(port, most_bytes=10_000, deadline_s=30.0)) == Response(200, packed)


def test_of_an_answer_whose_body_is_not_wanted_nothing_is_read() -> None:
    with peers.peer(peers.flooding(peers.HEAD + b"\r\n")) as port:
        assert ask(question(port, most_bytes=0, deadline_s=30.0)) == Response(200)


def test_a_name_that_nobody_tells_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    given_up = threading.Event()

    def look_up(*_: object, **__: object) -> list[object]:
        given_up.wait(30)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(TimeoutError):
        ask(question(80, url="http://slow.example/"))
    given_up.set()


def test_the_next_address_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with peers.peer(peers.saying(peers.HEAD + b"Content-Length: 2\r\n\r\n{}")) as port:
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", number)) for number in (1, port)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        assert ask(question(port, url="http://two.example/", deadline_s=30.0)) == Response(200, b"{}")


def test_a_connection_that_is_made_too_late_is_ended_at_once() -> None:
    here, there = socket.socketpair()
    deadline = Deadline(0.01)
    with here, there:
        with contextlib.suppress(TimeoutError), deadline:
            while not deadline.is_over:
                threading.Event().wait(0.01)
            deadline.take(here)
        assert there.recv(1) == b""


def test_what_has_another_cause_stays_what_it_is() -> None:
    with pytest.raises(ConnectionRefusedError):
        ask(question(1, deadline_s=30.0))
    with peers.peer(peers.silent) as port, pytest.raises(ValueError, match="Invalid header value"):
        ask(question(port, headers={"X": "a\nb"}, deadline_s=30.0))
