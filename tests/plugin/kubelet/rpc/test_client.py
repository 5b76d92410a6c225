"""Calls of the daemon's own client: answered by gRPC's own library, and by peers that misbehave."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import grpc
import h2.config
import h2.connection
import h2.events
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugin.kubelet.rpc.client import call_unary
from plugin.kubelet.rpc.codec import decode, encode
from plugin.kubelet.rpc.connection import Limits
from plugin.kubelet.rpc.framing import frame_message
from plugin.kubelet.rpc.status import CallError, Code
from tests.plugin.kubelet.rpc.served import Text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path


@contextmanager
def grpc_server(
    path: Path, answer: Callable[[Text, grpc.ServicerContext], Text], serialize: Callable[[Text], bytes] = encode
) -> Iterator[None]:
    handler = grpc.unary_unary_rpc_method_handler(
        answer, request_deserializer=lambda data: decode(Text, data), response_serializer=serialize
    )
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", {"Echo": handler}),))
    server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield
    finally:
        server.stop(0).wait()


def call(
    path: Path, request: Text, *, method: str = "Echo", deadline_s: float = 20, limits: Limits | None = None
) -> Text:
    return asyncio.run(call_unary(str(path), f"/t.T/{method}", request, Text, deadline_s=deadline_s, limits=limits))


def refusal(path: Path, request: Text, **options: Any) -> tuple[Code, str]:
    with pytest.raises(CallError) as raised:
        call(path, request, **options)
    return raised.value.code, raised.value.detail


@pytest.mark.parametrize("size", [0, 70_000, (1 << 20) - 10])
def test_a_call_of_any_size_is_answered(tmp_path: Path, size: int) -> None:
    with grpc_server(tmp_path / "s", lambda request, _: request):
        assert call(tmp_path / "s", Text(name="x" * size)) == Text(name="x" * size)


def test_a_refusal_arrives_with_its_text(tmp_path: Path) -> None:
    def refuse(_request: Text, context: grpc.ServicerContext) -> Text:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "nicht möglich: 100 %")
        raise AssertionError

    with grpc_server(tmp_path / "s", refuse):
        assert refusal(tmp_path / "s", Text()) == (Code.FAILED_PRECONDITION, "nicht möglich: 100 %")


def test_a_method_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    with grpc_server(tmp_path / "s", lambda request, _: request):
        assert refusal(tmp_path / "s", Text(), method="Missing")[0] is Code.UNIMPLEMENTED


@pytest.mark.slow
def test_a_peer_that_hangs_is_given_up_and_knows_the_deadline(tmp_path: Path) -> None:
    seen: list[float] = []
    done = threading.Event()

    def hang(request: Text, context: grpc.ServicerContext) -> Text:
        seen.append(context.time_remaining() or 0)
        done.wait(20)
        return request

    with grpc_server(tmp_path / "s", hang):
        assert refusal(tmp_path / "s", Text(), deadline_s=0.3)[0] is Code.DEADLINE_EXCEEDED
        done.set()
    assert 0 < seen[0] <= 0.31


def test_an_answer_that_is_too_long_is_not_taken(tmp_path: Path) -> None:
    with grpc_server(tmp_path / "s", lambda _, __: Text(name="x" * 1000)):
        assert refusal(tmp_path / "s", Text(), limits=Limits(message_bytes=500))[0] is Code.RESOURCE_EXHAUSTED


def test_an_answer_that_is_another_message_is_an_error(tmp_path: Path) -> None:
    with grpc_server(tmp_path / "s", lambda request, _: request, lambda _: b"\xff"):
        assert refusal(tmp_path / "s", Text()) == (
            Code.INTERNAL,
            "the answer is no CDIDevice: the message ends too early",
        )


def test_a_socket_that_is_not_there_or_not_served_is_unavailable(tmp_path: Path) -> None:
    assert refusal(tmp_path / "s", Text()) == (Code.UNAVAILABLE, "no such file or directory")
    with grpc_server(tmp_path / "s", lambda request, _: request):
        (tmp_path / "kept").hardlink_to(tmp_path / "s")
    (tmp_path / "kept").rename(tmp_path / "s")
    assert refusal(tmp_path / "s", Text()) == (Code.UNAVAILABLE, "connection refused")


@asynccontextmanager
async def peer(path: Path, reply: Callable[[bytes], bytes], *, hangs_up: bool = True) -> AsyncIterator[None]:
    """Answer whatever was sent first with bytes, and hang up then or at the end."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        writer.write(reply(await reader.read(65536)))
        if hangs_up:
            writer.close()

    server = await asyncio.start_unix_server(serve, path)
    try:
        yield
    finally:
        server.close()
        for writer in writers:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


def outcome(path: Path, reply: Callable[[bytes], bytes], *, hangs_up: bool = True) -> Code:
    path.unlink(missing_ok=True)

    async def scenario() -> Code:
        async with peer(path, reply, hangs_up=hangs_up):
            try:
                await call_unary(str(path), "/t.T/Echo", Text(), Text, deadline_s=10)
            except CallError as error:
                return error.code
        return Code.OK

    return asyncio.run(scenario())


def scripted(act: Callable[[h2.connection.H2Connection, int], None]) -> Callable[[bytes], bytes]:
    """Let an HTTP/2 server act on the first request."""

    def reply(data: bytes) -> bytes:
        http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, validate_outbound_headers=False))
        http.initiate_connection()
        for event in http.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                act(http, event.stream_id)
        return http.data_to_send()

    return reply


HEADERS = [(":status", "200"), ("content-type", "application/grpc")]


def answer_twice(http: h2.connection.H2Connection, stream: int) -> None:
    http.send_headers(stream, HEADERS)
    http.send_data(stream, frame_message(encode(Text(name="x"))) * 2)


@pytest.mark.parametrize(
    ("act", "code"),
    [
        pytest.param(lambda http, _: http.close_connection(), Code.UNAVAILABLE, id="goodbye at once"),
        pytest.param(lambda http, stream: http.reset_stream(stream, 7), Code.UNAVAILABLE, id="stream refused"),
        pytest.param(lambda http, stream: http.reset_stream(stream, 8), Code.CANCELLED, id="stream cancelled"),
        pytest.param(lambda http, stream: http.reset_stream(stream, 2), Code.INTERNAL, id="stream broken"),
        pytest.param(
            lambda http, stream: http.send_headers(stream, [(":status", "503")], end_stream=True),
            Code.UNAVAILABLE,
            id="a proxy's error",
        ),
        pytest.param(
            lambda http, stream: http.send_headers(stream, HEADERS, end_stream=True), Code.UNKNOWN, id="no status"
        ),
        pytest.param(
            lambda http, stream: http.send_headers(stream, [*HEADERS, ("grpc-status", "0")], end_stream=True),
            Code.INTERNAL,
            id="success without an answer",
        ),
        pytest.param(
            lambda http, stream: http.send_headers(stream, [*HEADERS, ("grpc-status", "77")], end_stream=True),
            Code.UNKNOWN,
            id="a status that does not exist",
        ),
        pytest.param(answer_twice, Code.INTERNAL, id="a second answer, and no end"),
    ],
)
def test_odd_ends_of_a_call_become_a_status(
    tmp_path: Path, act: Callable[[h2.connection.H2Connection, int], None], code: Code
) -> None:
    assert outcome(tmp_path / "s", scripted(act), hangs_up=False) is code


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    reply=st.binary(max_size=200)
    | st.binary(max_size=60).map(lambda data: b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + data)
)
def test_no_answer_is_too_odd(tmp_path_factory: pytest.TempPathFactory, reply: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "odd"
    assert outcome(path, lambda _: reply) in {Code.UNAVAILABLE, Code.INTERNAL, Code.UNKNOWN}
