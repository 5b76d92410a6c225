"""What one connection sends at once is worked through in turns: the others have theirs in between."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import h2.config
import h2.connection
import h2.events

from plugin.kubelet.rpc.connection import Connection, Limits

if TYPE_CHECKING:
    from collections.abc import Iterable

FRAMES = 50


class MemoryTransport(asyncio.Transport):
    """Keeps what is written; full after `room` bytes."""

    def __init__(self, room: int = 1 << 20) -> None:
        super().__init__()
        self.written = b""
        self.room = room
        self.protocol: Connection | None = None
        self.is_read = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data
        if len(self.written) > self.room and self.protocol is not None:
            self.protocol.pause_writing()

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


class Listening(Connection):
    """Notes the calls that it was sent."""

    def __init__(self, turn_s: float) -> None:
        super().__init__(Limits(turn_s=turn_s), is_client=False)
        self.calls: list[int] = []

    def on_headers(self, stream_id: int, headers: Iterable[tuple[bytes, bytes]]) -> None:  # which does not matter
        self.calls.append(stream_id)


def flood() -> bytes:
    """Return a client's first bytes: 50 settings, then a call."""
    http = h2.connection.H2Connection(h2.config.H2Configuration())
    http.initiate_connection()
    hello = http.data_to_send()
    http.send_headers(1, [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "x")])
    return hello + (bytes(3) + b"\x04" + bytes(5)) * FRAMES + http.data_to_send()


def begin(transport: MemoryTransport, turn_s: float = 0.0) -> Listening:
    connection = Listening(turn_s)
    transport.protocol = connection
    connection.connection_made(transport)
    transport.written = b""
    return connection


def acknowledged(transport: MemoryTransport) -> int:
    return transport.written.count(b"\x00\x00\x00\x04\x01\x00\x00\x00\x00")


def test_a_flood_of_settings_leaves_turns_for_others_and_nothing_is_read_meanwhile() -> None:
    async def scenario() -> None:
        transport = MemoryTransport()
        connection = begin(transport)
        connection.data_received(flood())
        turns = 0
        while not connection.calls:
            assert not transport.is_read
            turns += 1
            await asyncio.sleep(0)
        assert turns >= FRAMES
        await asyncio.sleep(0)  # the turn in which nothing is left
        assert transport.is_read
        assert acknowledged(transport) == FRAMES + 1

    asyncio.run(scenario())


def test_a_few_frames_are_taken_in_one_turn() -> None:
    async def scenario() -> None:
        transport = MemoryTransport()
        connection = begin(transport, turn_s=60)
        connection.data_received(flood())
        assert connection.calls == [1]
        assert transport.is_read

    asyncio.run(scenario())


def test_frames_wait_while_the_peer_does_not_read_the_answers() -> None:
    async def scenario() -> None:
        transport = MemoryTransport(room=10 * 9)
        connection = begin(transport)
        connection.data_received(flood())
        for _ in range(3 * FRAMES):
            await asyncio.sleep(0)
        assert not connection.calls
        assert not transport.is_read
        waiting = acknowledged(transport)
        assert waiting <= 11
        transport.room = 1 << 20
        connection.resume_writing()
        for _ in range(3 * FRAMES):
            await asyncio.sleep(0)
        assert acknowledged(transport) == FRAMES + 1
        assert transport.is_read

    asyncio.run(scenario())


def test_frames_that_wait_are_forgotten_with_their_connection() -> None:
    async def scenario() -> None:
        transport = MemoryTransport()
        connection = begin(transport)
        connection.data_received(flood())
        connection.connection_lost(None)
        for _ in range(3 * FRAMES):
            await asyncio.sleep(0)
        assert not connection.calls

    asyncio.run(scenario())
