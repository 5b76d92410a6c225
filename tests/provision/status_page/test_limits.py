"""What one client may cost: nobody keeps anybody else waiting."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading

import pytest

from provision.rollout.model import Phase
from tests import peers
from tests.provision.status_page.fleets import changed, in_drain, record
from tests.provision.status_page.served import SMALL, TOKEN, answering, ask, events, is_ended, open_events, serving


def test_pages_that_read_nothing_keep_nobody_waiting() -> None:
    name = in_drain(SMALL)
    with contextlib.ExitStack() as stack:
        server, feed = stack.enter_context(serving())
        for _ in range(20):
            stack.enter_context(open_events(server))
        reading = stack.enter_context(open_events(server))
        stream = events(reading)
        next(stream)
        for number in range(300):
            feed.take(changed(SMALL, {name: record(Phase.VERIFY, 90, number)}))
        feed.take(changed(SMALL, {name: record(Phase.RESUME, 90, 1)}))
        assert any(document["nodes"][-1][2] == "resume" for _kind, document in stream)  # type: ignore[index]  # a list


def test_a_request_that_does_not_come_is_ended_however_it_drips() -> None:
    with serving(ask_s=0.3) as (server, _), socket.create_connection(("127.0.0.1", server.server_port), 30) as client:
        assert is_ended(client, drip=b"G")
        assert ask(server, "/")[0].status == 200


def test_events_go_on_for_longer_than_a_request_may_take() -> None:
    with serving(ask_s=0.2) as (server, feed), open_events(server) as client:
        stream = events(client)
        next(stream)
        late = threading.Event()
        late.wait(0.2 * 4)  # the server ends requests that have not come by then
        name = next(iter(SMALL.nodes))
        feed.take(changed(SMALL, {name: record(Phase.VERIFY, 90, 1)}))
        assert next(stream)[0] == "change"


def test_a_form_that_does_not_come_is_ended_like_a_request() -> None:
    """Once a head had come nothing asked for the body: one place each, for as long as a byte came now and then."""
    head = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
    with (
        serving(token=TOKEN, ask_s=0.3) as (server, _),
        socket.create_connection(("127.0.0.1", server.server_port), 30) as client,
    ):
        client.sendall(head)
        assert is_ended(client, drip=b"t")
        assert ask(server, "/")[0].status == 303


def test_an_answer_that_nobody_takes_is_ended() -> None:
    """A drop that is taken now and then resets no clock either."""
    others = answering()
    with serving(ask_s=600.0, take_s=0.3) as (server, _), socket.socket() as client:
        server.static["/large"] = ("text/plain", b"x" * 64 * 2**20)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        client.connect(("127.0.0.1", server.server_port))
        client.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for _ in range(1500):
            client.recv(1)
            if answering() <= others:
                break
            threading.Event().wait(0.02)
        assert answering() <= others


def test_a_head_is_bounded_as_a_whole() -> None:
    """97 headers of 64 KiB each were within every single limit, and 6 MiB before anybody was asked for a token."""
    with (
        serving(token=TOKEN, ask_s=600.0) as (server, _),
        socket.create_connection(("127.0.0.1", server.server_port), 30) as client,
    ):
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        with contextlib.suppress(ConnectionError):
            for number in range(97):
                client.sendall(b"x-%d: %s\r\n" % (number, b"a" * 64_000))
        assert is_ended(client)


def test_there_is_an_end_to_the_number_of_clients_and_a_new_one_gets_in() -> None:
    with serving(max_clients=3) as (server, _), contextlib.ExitStack() as stack:
        streams = [events(stack.enter_context(open_events(server))) for _ in range(3)]
        assert [next(stream)[0] for stream in streams] == ["fleet"] * 3
        assert ask(server, "/")[0].status == 200
        assert list(streams[0]) == [], "the oldest had to go"


def test_who_holds_many_places_and_reads_nothing_keeps_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams that nobody reads cost their holder nothing; they had all the places for hours."""
    monkeypatch.setattr("provision.report.status_page.server.LOOK_S", 0.05)
    name = in_drain(SMALL)
    with serving(max_clients=8) as (server, feed), contextlib.ExitStack() as stack:
        other = stack.enter_context(open_events(server, source="127.0.0.2"))
        stream = events(other)
        assert next(stream)[0] == "fleet"
        for _ in range(50):
            stack.enter_context(open_events(server))
        assert ask(server, "/")[0].status == 200, "of the same address"
        feed.take(changed(SMALL, {name: record(Phase.VERIFY, 90, 1)}))
        assert next(stream)[0] == "change", "who holds one place keeps it"


def test_a_handshake_that_does_not_come_keeps_nobody_out(certificate: tuple[str, str]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    trusting = ssl.create_default_context(cafile=certificate[0])
    with serving(max_clients=3, ask_s=600.0, tls=context) as (server, _), contextlib.ExitStack() as stack:
        address = ("127.0.0.1", server.server_port)
        silent = [stack.enter_context(socket.create_connection(address, 30)) for _ in range(9)]
        with (
            socket.create_connection(address, 30) as plain,
            trusting.wrap_socket(plain, server_hostname="127.0.0.1") as client,
        ):
            client.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.1 200"
        assert is_ended(silent[0])


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Return files with a certificate for 127.0.0.1 and its key."""
    return peers.certificate(tmp_path_factory.mktemp("tls"))


@pytest.mark.parametrize(
    "request_",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"X" * 70_000,
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        b"\x16\x03\x01\x00",
    ],
)
def test_nonsense_is_answered_or_ended(request_: bytes) -> None:
    with serving(ask_s=0.3) as (server, _):
        with socket.create_connection(("127.0.0.1", server.server_port), 30) as client, contextlib.suppress(OSError):
            client.sendall(request_)
            while client.recv(4096):
                pass
        assert ask(server, "/")[0].status == 200
