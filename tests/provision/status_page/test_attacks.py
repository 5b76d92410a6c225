"""What browsers and programs send to the live page, and what nodes are called, is their own trouble alone."""

from __future__ import annotations

import errno
import re
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from provision.report.status_page.feed import Feed
from tests.provision.status_page.fleets import NOW, FakeReader
from tests.provision.status_page.served import SMALL, ask, serving

if TYPE_CHECKING:
    from provision.report.status_page.server import PageServer

HOST = b"Host: 127.0.0.1\r\n"
MARKUP = b"<img/src=x/onerror=alert(1)>"


def raw(server: PageServer, request: bytes) -> bytes:
    """Send a request and return the answer; one that is not read to its end may be cut off at any moment."""
    answer = b""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=30) as client:
        try:
            client.sendall(request)
            client.shutdown(socket.SHUT_WR)
            while part := client.recv(65536):
                answer += part
        except OSError as error:
            if error.errno not in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN):
                raise
    return answer


@pytest.mark.parametrize(
    "request_",
    [
        MARKUP + b" / HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET / HTTP/" + MARKUP + b"\r\n" + HOST + b"\r\n",
        b"GET /" + MARKUP + b" HTTP/9.9\r\n" + HOST + b"\r\n",
        b"GET " + MARKUP + b" x y z\r\n" + HOST + b"\r\n",
        b"GET /" + MARKUP + b" HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /node/" + MARKUP + b" HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /events HTTP/1.1\r\nHost: " + MARKUP + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + MARKUP * 2000 + b"\r\n",
        b"TRACE / HTTP/1.1\r\n" + HOST + b"Cookie: " + MARKUP + b"\r\n\r\n",
    ],
    ids=["method", "version", "another version", "words", "path", "node", "host", "head", "trace"],
)
def test_nothing_of_a_request_comes_back(request_: bytes) -> None:
    """The standard library's own answers repeated the method, in a page of HTML without any of our headers."""
    with serving() as (server, _):
        answer = raw(server, request_)

    assert b"onerror" not in answer
    assert b"<html" not in answer.lower()


@pytest.mark.parametrize("path", ["/", "/metrics", "/main.js", "/node/gpu-001-01", "/nothing"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE", "POST"])
def test_no_other_origin_is_ever_let_in(path: str, method: str) -> None:
    with serving() as (server, _):
        asked, _body = ask(
            server, path, method, Origin="http://evil.example", Access_Control_Request_Private_Network="true"
        )
        assert not [name for name in asked.headers if name.lower().startswith("access-control")]
        embedded, body = ask(server, path, method, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors")

    assert embedded.status in {403, 501}
    assert b"gpu-" not in body


@pytest.mark.parametrize(
    "smuggled",
    [
        b"POST /login HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /login HTTP/1.1\r\n" + HOST + b"Content-Length: 0\r\nContent-Length: 90\r\n\r\n",
        b"GET /login HTTP/1.1\r\n" + HOST + b"Content-Length: 90\r\nConnection: keep-alive\r\n\r\n",
    ],
    ids=["chunked", "two lengths", "body of a GET"],
)
def test_a_connection_has_one_answer(smuggled: bytes) -> None:
    with serving() as (server, _):
        answer = raw(server, smuggled + b"GET /metrics HTTP/1.1\r\n" + HOST + b"\r\n")

    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"grapnel_rollout" not in answer


def test_the_page_makes_no_html_of_text() -> None:
    """The files of the page have no place where text becomes HTML or a script; the policy would stop what did."""
    sinks = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|javascript:|DOMParser"
    with serving() as (server, _):
        for path, (_kind, body) in server.static.items():
            text = body.decode()
            assert not re.findall(sinks, text), path
            if path.endswith(".html"):
                assert not re.findall(r"\son\w+=|<script(?![^>]*\ssrc=)|\sstyle=", text), path


def test_a_name_or_a_reason_ends_no_event() -> None:
    said = "x\n\ndata: {}\r\nevent: fleet\nid: 0-0\n\n\u2028\u2029\0"
    one = next(iter(SMALL.nodes.values()))
    standing = SMALL.standing
    assert standing is not None
    seen = replace(
        SMALL,
        nodes={**SMALL.nodes, said: replace(one, name=said), "__proto__": replace(one, name="__proto__")},
        standing=replace(standing, waiting={**standing.waiting, said: said}),
    )
    feed = Feed(FakeReader(seen), clock=NOW.timestamp)
    feed.take(seen)
    message = feed.wait("", 0)

    assert message is not None
    assert not {b"\n", b"\r", b"\0"} & {bytes([each]) for each in message.body}
    assert feed.metrics().isascii()


def test_versions_that_somebody_makes_up_cost_no_memory() -> None:
    feed = Feed(FakeReader(SMALL), clock=NOW.timestamp)
    for second in range(60):
        feed.take(replace(SMALL, complaints=(f"{second}",)))
        for number in ("-1", "0", "\u0663", "9" * 5000, str(second), "x"):
            feed.wait(f"{feed._epoch}-{number}", 0)
            assert feed.wait(f"{number}-{number}", 0) is not None

    assert len(feed._cache) <= 8
