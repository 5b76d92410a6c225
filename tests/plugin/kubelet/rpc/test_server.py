"""Calls over a real socket, made by gRPC's own library."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from lab.kubelet.endpoint import status_of
from plugin.kubelet.rpc.codec import decode, encode
from plugin.kubelet.rpc.connection import Limits
from tests.plugin.kubelet.rpc.served import Served, Text, Texts
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from plugin.kubelet.rpc.codec import Message

LIMIT_BYTES = 1 << 20


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path) as running:
        yield running


def channel_to(served: Served, *options: tuple[str, int]) -> grpc.Channel:
    default = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))
    return grpc.insecure_channel(served.target, options=(*default, *options))


@pytest.fixture
def channel(served: Served) -> Iterator[grpc.Channel]:
    with channel_to(served) as opened:
        yield opened


def call(
    channel: grpc.Channel,
    method: str,
    request: Message | bytes,
    timeout_s: float | None = 20,
    compression: grpc.Compression | None = None,
) -> Text:
    data = request if isinstance(request, bytes) else encode(request)
    answer = channel.unary_unary(f"/t.T/{method}", request_serializer=bytes, response_deserializer=bytes)
    return decode(Text, answer(data, timeout=timeout_s, compression=compression))


def refusal(
    channel: grpc.Channel,
    method: str,
    request: Message | bytes,
    timeout_s: float | None = 20,
    compression: grpc.Compression | None = None,
) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as raised:
        call(channel, method, request, timeout_s, compression)
    return status_of(raised.value)


def stream(channel: grpc.Channel, method: str, request: Message) -> Any:
    serve = channel.unary_stream(f"/t.T/{method}", request_serializer=bytes, response_deserializer=bytes)
    return serve(encode(request), timeout=20)


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 1, 16_384, 65_535, 200_000, LIMIT_BYTES - 10])
def test_a_message_of_any_size_goes_both_ways(channel: grpc.Channel, size: int) -> None:
    assert call(channel, "Echo", Text(name="x" * size)) == Text(name="x" * size)


@pytest.mark.slow
def test_calls_at_the_same_time_are_kept_apart(channel: grpc.Channel) -> None:
    echo = channel.unary_unary("/t.T/Echo", request_serializer=bytes, response_deserializer=bytes)
    pending = [echo.future(encode(Text(name=f"{number} " * 20_000)), timeout=20) for number in range(20)]
    assert [decode(Text, each.result()).name.split()[0] for each in pending] == [f"{number}" for number in range(20)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "request_", "status", "text"),
    [
        pytest.param("Missing", Text(), grpc.StatusCode.UNIMPLEMENTED, "'/t.T/Missing'", id="unknown method"),
        pytest.param(
            "Fail", Texts(devices_ids=("NOT_FOUND", "é %\n")), grpc.StatusCode.NOT_FOUND, "é %\n", id="odd text"
        ),
        pytest.param(
            "Fail", Texts(devices_ids=("ABORTED", "x" * 70_000)), grpc.StatusCode.ABORTED, "xxx", id="long text"
        ),
        pytest.param("Crash", Text(), grpc.StatusCode.INTERNAL, "bug", id="a bug"),
        pytest.param("Echo", b"\xff\xff", grpc.StatusCode.INTERNAL, "CDIDevice", id="no message"),
        pytest.param("Echo", b"x" * (LIMIT_BYTES + 1), grpc.StatusCode.RESOURCE_EXHAUSTED, "longer", id="too long"),
    ],
)
def test_a_call_that_fails_says_why_and_the_next_one_is_answered(
    channel: grpc.Channel, method: str, request_: Message | bytes, status: grpc.StatusCode, text: str
) -> None:
    code, details = refusal(channel, method, request_)
    assert code is status
    assert text in details
    assert len(details) < 2000
    assert call(channel, "Echo", Text(name="next")).name == "next"


def test_a_compressed_request_is_refused(channel: grpc.Channel) -> None:
    code, _ = refusal(channel, "Echo", Text(name="x" * 10_000), compression=grpc.Compression.Gzip)
    assert code is grpc.StatusCode.UNIMPLEMENTED


def test_the_callers_deadline_ends_the_call_on_both_sides(served: Served, channel: grpc.Channel) -> None:
    code, _ = refusal(channel, "Hang", Text(), timeout_s=0.1)
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert served.calls.ended.wait(20)


def test_a_caller_without_a_deadline_is_not_kept_waiting_for_ever(tmp_path: Path) -> None:
    with Served(tmp_path, Limits(call_s=0.1)) as served, channel_to(served) as channel:
        code, details = refusal(channel, "Hang", Text(), timeout_s=None)
        assert (code, details) == (grpc.StatusCode.DEADLINE_EXCEEDED, "the call took too long")
        assert served.calls.ended.wait(20)


@pytest.mark.slow
def test_a_stream_is_not_bound_by_the_limit_of_a_call(tmp_path: Path) -> None:
    with Served(tmp_path, Limits(call_s=0.05)) as served, channel_to(served) as channel:
        watching = stream(channel, "Watch", Text(name="first"))
        assert decode(Text, next(watching)).name == "first"
        assert not served.calls.ended.wait(0.3)
        watching.cancel()
        assert served.calls.ended.wait(20)


@pytest.mark.slow
def test_a_stream_arrives_in_order_and_ends_well(channel: grpc.Channel) -> None:
    found = list(stream(channel, "Repeat", Texts(devices_ids=("x" * 10_000, "300"))))
    assert len(found) == 300
    assert {len(decode(Text, each).name) for each in found} == {10_000}


@pytest.mark.slow
def test_a_reader_that_does_not_read_is_not_written_to_without_end(served: Served) -> None:
    # Without the probe, after which gRPC may open its window for all of it.
    with channel_to(served, ("grpc.http2.bdp_probe", 0)) as channel:
        reading = stream(channel, "Repeat", Texts(devices_ids=("x" * 100_000, "200")))
        next(reading)
        wait_until(lambda: served.calls.sent > 0, lambda: "nothing was sent")
        assert not served.calls.ended.wait(0.3)  # 20 MB do not fit into windows and buffers
        assert sum(1 for _ in reading) == 199


def test_a_call_that_is_given_up_is_stopped(served: Served, channel: grpc.Channel) -> None:
    hang = channel.unary_unary("/t.T/Hang", request_serializer=bytes, response_deserializer=bytes)
    pending: Any = hang.future(b"", timeout=20)
    wait_until(lambda: served.calls.begun == 1, lambda: "the call has not begun")
    pending.cancel()
    assert served.calls.ended.wait(20)
    assert call(channel, "Echo", Text(name="next")).name == "next"


def test_a_connection_that_goes_takes_its_calls_along(served: Served) -> None:
    with channel_to(served) as channel:
        assert decode(Text, next(stream(channel, "Watch", Text(name="first")))).name == "first"
    assert served.calls.ended.wait(20)
    wait_until(lambda: served.server.open_connections == 0, lambda: f"{served.server.open_connections=}")


@pytest.mark.slow
def test_hundreds_of_streams_and_connections_leave_nothing_behind(served: Served) -> None:
    with channel_to(served) as channel:
        for _ in range(300):
            watching = stream(channel, "Watch", Text(name="first"))
            next(watching)
            watching.cancel()
    for _ in range(100):
        with channel_to(served) as channel:
            next(stream(channel, "Watch", Text(name="first")))
    wait_until(lambda: served.calls.cancelled == 400, lambda: f"{served.calls.cancelled=}")
    wait_until(lambda: served.server.open_connections == 0, lambda: f"{served.server.open_connections=}")


def test_a_server_that_stops_ends_its_calls_and_accepts_no_other(tmp_path: Path) -> None:
    with Served(tmp_path) as served, channel_to(served) as channel:
        watching = stream(channel, "Watch", Text(name="first"))
        next(watching)
        served.run(served.server.stop(0))
        with pytest.raises(grpc.RpcError) as raised:
            next(watching)
        assert status_of(raised.value)[0] is grpc.StatusCode.UNAVAILABLE
        assert refusal(channel, "Echo", Text(), timeout_s=60)[0] is grpc.StatusCode.UNAVAILABLE


def test_a_call_that_is_nearly_done_may_end_before_the_server_stops(served: Served, channel: grpc.Channel) -> None:
    reading = stream(channel, "Repeat", Texts(devices_ids=("x" * 100_000, "20")))
    next(reading)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.extend(reading))
    reader.start()
    served.run(served.server.stop(10))
    reader.join(20)
    assert len(found) == 19


def test_a_connection_that_nobody_uses_makes_place_for_another(tmp_path: Path) -> None:
    with Served(tmp_path, Limits(connections=2)) as served, channel_to(served) as idle, channel_to(served) as busy:
        assert call(idle, "Echo", Text(name="1")).name == "1"
        watching = stream(busy, "Watch", Text(name="2"))
        next(watching)
        with channel_to(served) as late:
            assert call(late, "Echo", Text(name="3")).name == "3"
            assert served.server.open_connections == 2
            assert not served.calls.ended.is_set()


def test_a_connection_whose_stream_has_ended_is_closed_for_the_next_stream(served: Served) -> None:
    with channel_to(served) as over, channel_to(served) as asking, channel_to(served) as now:
        assert call(asking, "Echo", Text(name="0")).name == "0"
        ended = stream(over, "Watch", Text(name="1"))
        next(ended)
        ended.cancel()
        assert served.calls.ended.wait(20)
        assert served.server.open_connections == 2
        watching = stream(now, "Watch", Text(name="2"))
        next(watching)
        wait_until(lambda: served.server.open_connections == 2, lambda: f"{served.server.open_connections=}")
        assert served.calls.cancelled == 1


def test_a_connection_whose_stream_has_ended_stays_while_a_call_is_under_way(served: Served) -> None:
    with channel_to(served) as over, channel_to(served) as now:
        ended = stream(over, "Watch", Text(name="1"))
        next(ended)
        hang = over.unary_unary("/t.T/Hang", request_serializer=bytes, response_deserializer=bytes)
        pending: Any = hang.future(b"", timeout=20)
        wait_until(lambda: served.calls.begun == 2, lambda: "the call has not begun")
        ended.cancel()
        assert served.calls.ended.wait(20)
        watching = stream(now, "Watch", Text(name="2"))
        next(watching)
        assert served.server.open_connections == 2
        assert not pending.done()


def test_connections_that_are_in_use_are_not_given_up_for_another(tmp_path: Path) -> None:
    with Served(tmp_path, Limits(connections=1)) as served, channel_to(served) as busy, channel_to(served) as late:
        watching = stream(busy, "Watch", Text(name="first"))
        next(watching)
        assert refusal(late, "Echo", Text(), timeout_s=60)[0] is grpc.StatusCode.UNAVAILABLE
        assert not served.calls.ended.is_set()


def test_a_socket_that_was_left_behind_is_replaced_but_a_file_is_not(tmp_path: Path) -> None:
    with Served(tmp_path):
        pass
    assert (tmp_path / "s").is_socket()
    with Served(tmp_path) as served, channel_to(served) as channel:
        assert call(channel, "Echo", Text(name="again")).name == "again"
    (tmp_path / "s").unlink()
    (tmp_path / "s").write_text("a file")
    served = Served(tmp_path)
    with pytest.raises(OSError, match="in use"), served:
        pass
    assert (tmp_path / "s").read_text() == "a file"


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_only_root_is_served(served: Served, tmp_path: Path) -> None:
    script = (
        "import os, socket, sys\n"
        "connection = socket.socket(socket.AF_UNIX); connection.settimeout(10)\n"
        "os.chdir(sys.argv[1]); os.setuid(int(sys.argv[2]))\n"
        "connection.connect('s'); print(len(connection.recv(1000)))"
    )
    tmp_path.chmod(0o755)
    (tmp_path / "s").chmod(0o666)

    def received(uid: int) -> int:
        command = [sys.executable, "-c", script, str(tmp_path), str(uid)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert received(65534) == 0
    assert received(0) > 0
    assert served.calls.begun == 0
