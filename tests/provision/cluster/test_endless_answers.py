"""An API server, or a proxy before it, whose answers have no end: each request has one, in time and in bytes."""

from __future__ import annotations

import gzip
import threading
from dataclasses import replace

import pytest

from provision.cluster.errors import RefusedError
from provision.cluster.kubernetes.api.transport import Transport
from provision.rollout.errors import UnreachableError
from tests import peers
from tests.provision.cluster.test_transport import GET, kubeconfig


@pytest.mark.parametrize("behave", peers.ENDLESS.values(), ids=peers.ENDLESS)
def test_an_answer_without_end_is_given_up(behave: peers.Behave) -> None:
    """A byte now and then reset the only clock that there was: a round of the controller never ended."""
    with peers.peer(behave) as port, pytest.raises(UnreachableError):
        Transport(kubeconfig(f"http://127.0.0.1:{port}")).send(replace(GET, timeout_s=0.2))


@pytest.mark.parametrize("way", ["status line", "headers"])
def test_a_stream_that_never_begins_is_given_up(way: str) -> None:
    with peers.peer(peers.ENDLESS[way]) as port, pytest.raises(UnreachableError):
        Transport(kubeconfig(f"http://127.0.0.1:{port}")).stream(replace(GET, timeout_s=0.2))


@pytest.mark.parametrize("way", ["chunks", "size of a chunk", "body"])
def test_a_line_without_end_is_given_up(way: str) -> None:
    """The copy of a cluster stood still, and counted as fresh: its watch was open."""
    with peers.peer(peers.ENDLESS[way]) as port:
        stream = Transport(kubeconfig(f"http://127.0.0.1:{port}")).stream(replace(GET, timeout_s=0.2))
        with pytest.raises(UnreachableError):
            list(stream.lines)
        stream.release()


def test_a_stream_waits_for_who_hears_it() -> None:
    """Only what is to come is waited for with a limit; the one of a line is over long before all have come."""
    lines = b"".join(b"2\r\n%d\n\r\n" % number for number in range(5))
    head = peers.HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    with peers.peer(peers.saying(head + lines + b"0\r\n\r\n")) as port:
        stream = Transport(kubeconfig(f"http://127.0.0.1:{port}")).stream(replace(GET, timeout_s=0.2))
        heard = []
        for line in stream.lines:
            heard.append(line)
            threading.Event().wait(0.3)
        stream.release()
    assert heard == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("is_packed", [False, True], ids=["flood", "what unpacks to more than it is"])
def test_an_answer_that_is_too_long_is_refused(*, is_packed: bool) -> None:
    body = gzip.compress(b"x" * 2**24) if is_packed else b"x" * 2**24
    head = peers.HEAD + (b"Content-Encoding: gzip\r\n" if is_packed else b"")
    with peers.peer(peers.saying(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)) as port:
        transport = Transport(kubeconfig(f"http://127.0.0.1:{port}"))
        with pytest.raises(RefusedError, match="more than 1000000 bytes"):
            transport.send(replace(GET, longest=1_000_000))


def test_a_proxy_without_end_is_given_up() -> None:
    with peers.peer(peers.dripping(b"HTTP/1.1 200 OK\r\nX: ")) as port:
        found = kubeconfig("https://127.0.0.1:1")
        found.document["clusters"][0]["cluster"]["proxy-url"] = f"http://127.0.0.1:{port}"
        with pytest.raises(UnreachableError):
            Transport(found).send(replace(GET, timeout_s=0.2))
