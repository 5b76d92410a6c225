"""Peers that break the rules: they lose their own connection, and nobody else notices."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

import h2.config
import h2.connection
import h2.events
import hpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugin.kubelet.rpc.client import call_unary
from plugin.kubelet.rpc.codec import encode
from plugin.kubelet.rpc.connection import Limits
from plugin.kubelet.rpc.framing import frame_message
from tests.plugin.kubelet.rpc.served import Served, Text
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED, ACK = 0x1, 0x4, 0x8, 0x1
FRAME_SIZE_ERROR = 0x6


def frame(kind: int, flags: int, stream: int, payload: bytes = b"", length: int | None = None) -> bytes:
    size = len(payload) if length is None else length
    return struct.pack(">I", size)[1:] + struct.pack(">BBI", kind, flags, stream) + payload


HELLO = PREFACE + frame(SETTINGS, 0, 0)


def block(*headers: tuple[str, str]) -> bytes:
    return bytes(hpack.Encoder().encode(headers))


REQUEST = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/t.T/Echo"),
    (":authority", "localhost"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
)
OPEN = frame(HEADERS, END_HEADERS, 1, block(*REQUEST))
BODY = frame_message(encode(Text(name="x")))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("rpc"), Limits(call_s=0.5)) as running:
        yield running


def exchange(served: Served, data: bytes, *, until_hung_up: bool = True) -> bytes:
    """Send bytes; return all that comes back until the server hangs up, or what comes back first."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(served.path)
        received = b""
        with suppress(ConnectionError):  # hung up while we still wrote: what was said before is there to be read
            connection.sendall(data)
            if not until_hung_up:
                connection.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while part := connection.recv(65536):
                received += part
        return received


def assert_alive(served: Served) -> None:
    answer = served.run(call_unary(served.path, "/t.T/Echo", Text(name="alive"), Text, deadline_s=60))
    assert answer == Text(name="alive")


def send_all(connection: socket.socket, data: bytes) -> None:
    """Send as `sendall` does, with the time limit of the socket for each part alone."""
    left = memoryview(data)
    while left:
        left = left[connection.send(left[:65536]) :]


def kinds(received: bytes) -> list[int]:
    """Return the kinds of the frames that came back."""
    found = []
    while len(received) >= 9:
        size = int.from_bytes(received[:3], "big")
        found.append(received[3])
        received = received[9 + size :]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", id="HTTP/1.1"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50), id="TLS"),
        pytest.param(HELLO + OPEN[:9] + b"\xff" * (len(OPEN) - 9), id="headers that are not packed"),
        pytest.param(HELLO + frame(HEADERS, END_HEADERS, 1, block(("a", "b"))), id="headers without a method"),
        pytest.param(HELLO + frame(HEADERS, END_HEADERS, 2, block(*REQUEST)), id="a stream of the server's"),
        pytest.param(HELLO + frame(HEADERS, END_HEADERS, 0, block(*REQUEST)), id="headers on stream 0"),
        pytest.param(
            HELLO + frame(HEADERS, 0, 1, block(*REQUEST)) + frame(PING, 0, 0, bytes(8)), id="headers cut short"
        ),
        pytest.param(HELLO + frame(HEADERS, 0, 1, b"") + frame(CONTINUATION, 0, 1, b"") * 200, id="endless headers"),
        pytest.param(
            HELLO + frame(HEADERS, END_HEADERS, 1, block(*REQUEST, ("a", "x" * 15_000), ("b", "y" * 3_000)), 0),
            id="a length of zero",
        ),
        pytest.param(HELLO + frame(DATA, END_STREAM, 0, BODY), id="data on stream 0"),
        pytest.param(HELLO + frame(DATA, END_STREAM, 5, BODY), id="data on a stream that is not open"),
        pytest.param(HELLO + OPEN + frame(DATA, PADDED, 1, b"\xff" + BODY), id="more padding than data"),
        pytest.param(HELLO + OPEN + frame(DATA, 0, 1, length=1 << 20), id="a frame that is too large"),
        pytest.param(HELLO + OPEN + frame(DATA, END_STREAM, 1, BODY) * 2, id="data after the end"),
        pytest.param(HELLO + frame(SETTINGS, 0, 0, b"\x00"), id="half a setting"),
        pytest.param(HELLO + frame(SETTINGS, 0, 0, b"\x00\x04\xff\xff\xff\xff"), id="a window that is too large"),
        pytest.param(HELLO + frame(WINDOW_UPDATE, 0, 0, bytes(4)), id="a window that does not grow"),
        pytest.param(HELLO + frame(WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff") * 2, id="a window that overflows"),
        pytest.param(HELLO + frame(RST_STREAM, 0, 9, bytes(4)), id="the end of a stream that never began"),
        pytest.param(HELLO + frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4)), id="a promise from a client"),
        pytest.param(HELLO + frame(CONTINUATION, END_HEADERS, 1, b""), id="a continuation of nothing"),
        pytest.param(HELLO + frame(PING, 0, 0, b"\x00"), id="a ping that is too short"),
        pytest.param(HELLO + frame(GOAWAY, 0, 0, bytes(8)), id="goodbye"),
        pytest.param(HELLO + frame(PRIORITY, 0, 1, b"\x00\x00\x00\x01\x00"), id="a stream that depends on itself"),
    ],
)
def test_a_broken_connection_ends_and_no_other(served: Served, data: bytes) -> None:
    exchange(served, data, until_hung_up=False)
    assert_alive(served)
    wait_until(lambda: served.server.open_connections == 0, lambda: f"{served.server.open_connections=}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({":method": "GET"}, "415", id="no POST"),
        pytest.param({"content-type": "text/html"}, "415", id="a browser's form"),
        pytest.param({":path": "/"}, "12", id="no method"),
        pytest.param({":path": "/t.T/" + "é" * 500}, "12", id="an odd and long path"),
        pytest.param({"grpc-timeout": "1 hour"}, "13", id="an odd time limit"),
        pytest.param({"grpc-timeout": "0n"}, "4", id="no time at all"),
    ],
)
def test_an_odd_request_is_answered_with_a_status(served: Served, headers: dict[str, str], status: str) -> None:
    request = {**dict(REQUEST), **headers}
    found = answer_of(served, request, [BODY])
    assert status in {found.get("grpc-status"), found.get(":status")}
    assert_alive(served)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param([], "13", id="no message"),
        pytest.param([BODY[:-1]], "13", id="half a message"),
        pytest.param([BODY, BODY], "13", id="two messages"),
        pytest.param([BODY + b"\x00"], "13", id="a message and a bit"),
        pytest.param([b"\x00\xff\xff\xff\xff"], "8", id="a message of four gigabytes"),
        pytest.param([b"\x01" + BODY[1:]], "12", id="a compressed message"),
        pytest.param([b"\x00\x00\x00\x00\x02\xff\xff"], "13", id="no protobuf"),
        pytest.param([bytes((byte,)) for byte in BODY], "0", id="a message in single bytes"),
    ],
)
def test_an_odd_body_is_answered_with_a_status(served: Served, body: list[bytes], status: str) -> None:
    assert answer_of(served, dict(REQUEST), body).get("grpc-status") == status
    assert_alive(served)


@pytest.mark.slow
def test_a_request_that_never_ends_is_given_up(served: Served) -> None:
    assert answer_of(served, dict(REQUEST), [BODY], ends=False).get("grpc-status") == "4"


@pytest.mark.slow
@pytest.mark.parametrize("message", [BODY, frame_message(b"")])
def test_a_call_that_goes_on_with_messages_is_refused_at_the_second_one(served: Served, message: bytes) -> None:
    assert answer_of(served, dict(REQUEST), [message, message], ends=False).get("grpc-status") == "13"
    assert_alive(served)


def answer_of(served: Served, headers: dict[str, str], body: list[bytes], *, ends: bool = True) -> dict[str, str]:
    """Make one call with any headers and body; return the headers and trailers of the answer."""
    config = h2.config.H2Configuration(header_encoding="utf-8", validate_outbound_headers=False)
    http = h2.connection.H2Connection(config)
    http.initiate_connection()
    http.send_headers(1, list(headers.items()))
    for part in body:
        http.send_data(1, part)
    if ends:
        http.end_stream(1)
    found: dict[str, str] = {}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(served.path)
        connection.sendall(http.data_to_send())
        while data := connection.recv(65536):
            for event in http.receive_data(data):
                if isinstance(event, (h2.events.ResponseReceived, h2.events.TrailersReceived)):
                    found.update({str(name): str(value) for name, value in event.headers})
                if isinstance(event, (h2.events.StreamEnded, h2.events.StreamReset)):
                    return found
    return found


def test_a_ping_is_answered(served: Served) -> None:
    received = exchange(served, HELLO + frame(PING, 0, 0, b"are you?"), until_hung_up=False)
    assert frame(PING, ACK, 0, b"are you?") in received


def test_a_header_list_that_is_too_long_ends_the_connection(served: Served) -> None:
    encoder = hpack.Encoder()
    long = bytes(encoder.encode([*REQUEST, ("a", "x" * 4000)])) + bytes(encoder.encode([("a", "x" * 4000)])) * 10
    received = exchange(served, HELLO + frame(HEADERS, END_HEADERS, 1, long))
    assert GOAWAY in kinds(received)
    assert_alive(served)


@pytest.mark.parametrize("length", [(1 << 14) + 1, (1 << 24) - 1], ids=["one byte too many", "16 MiB"])
def test_a_frame_that_is_too_long_ends_the_connection_before_it_has_come(served: Served, length: int) -> None:
    received = exchange(served, HELLO + OPEN + frame(DATA, 0, 1, length=length))
    assert received.endswith(frame(GOAWAY, 0, 0, struct.pack(">II", 1, FRAME_SIZE_ERROR)))
    assert_alive(served)


@pytest.mark.slow
def test_more_calls_at_once_than_allowed_end_the_connection(tmp_path: Path) -> None:
    encoder = hpack.Encoder()
    calls = [frame(HEADERS, END_HEADERS, 2 * number + 1, bytes(encoder.encode(REQUEST))) for number in range(200)]
    with Served(tmp_path, Limits()) as served:  # whose calls last long enough to be there at once
        assert GOAWAY in kinds(exchange(served, HELLO + b"".join(calls)))
        assert_alive(served)


@pytest.mark.slow
def test_streams_that_are_opened_and_reset_at_once_leave_nothing(served: Served) -> None:
    encoder = hpack.Encoder()
    calls = [
        frame(HEADERS, END_HEADERS, 2 * number + 1, bytes(encoder.encode(REQUEST)))
        + frame(RST_STREAM, 0, 2 * number + 1, struct.pack(">I", 8))
        for number in range(2000)
    ]
    exchange(served, HELLO + b"".join(calls), until_hung_up=False)
    assert_alive(served)


@pytest.mark.slow
def test_a_peer_that_asks_and_never_reads_is_not_listened_to(served: Served) -> None:
    pings = frame(PING, 0, 0, bytes(8)) * 200_000
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1)
        connection.connect(served.path)
        connection.sendall(HELLO)
        with pytest.raises(TimeoutError):  # no progress for a second
            send_all(connection, pings)
        assert_alive(served)
    wait_until(lambda: served.server.open_connections == 0, lambda: f"{served.server.open_connections=}")


FRAMES = st.one_of(
    st.builds(
        frame,
        st.integers(0, 12),
        st.integers(0, 255),
        st.sampled_from([0, 0, 1, 1, 2, 3, 5, 2**31 - 1]),
        st.binary(max_size=30) | st.sampled_from([block(*REQUEST), BODY]),
    ),
    st.sampled_from(
        [OPEN, frame(DATA, END_STREAM, 1, BODY), frame(SETTINGS, ACK, 0), frame(RST_STREAM, 0, 1, bytes(4))]
    ),
    st.binary(max_size=30),
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(data=st.lists(FRAMES, max_size=8).map(b"".join), has_preface=st.sampled_from([True, True, True, False]))
def test_no_bytes_harm_the_server(served: Served, data: bytes, has_preface: bool) -> None:  # noqa: FBT001 - drawn
    exchange(served, (HELLO if has_preface else b"") + data, until_hung_up=False)
    assert_alive(served)


VALID = HELLO + OPEN + frame(DATA, END_STREAM, 1, BODY) + frame(PING, 0, 0, bytes(8))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(position=st.integers(len(PREFACE), len(VALID) - 1), value=st.integers(0, 255), cut=st.integers(0, len(VALID)))
def test_no_changed_byte_harms_the_server(served: Served, position: int, value: int, cut: int) -> None:
    data = bytearray(VALID)
    data[position] = value
    exchange(served, bytes(data[: max(cut, position + 1)]), until_hung_up=False)
    assert_alive(served)
