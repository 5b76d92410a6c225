"""One HTTP/2 connection in the event loop: bytes in, events out, and sending that waits for room.

The only importer of h2. It is bounded on every side: what the peer may send at once, how much it may
leave unread, how long its headers are. Whatever it sends, the worst that happens is the end of this one
connection. Not here: what the events mean (`server`, `client`).
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from plugin.kubelet.rpc.frames import PREFACE_BYTES, FrameCutter, FrameTooLong

if TYPE_CHECKING:
    from collections.abc import Iterable

Headers = list[tuple[bytes, bytes]]
_LINGER_S = 5.0  # for a peer to read what was sent before the goodbye


@dataclass(frozen=True)
class Limits:
    """What one peer, or all of them, may cost."""

    message_bytes: int = 1 << 20  # a request names devices of one node
    header_bytes: int = 16 << 10
    calls: int = 128  # at once on a connection; a kubelet has a handful in flight
    connections: int = 64
    turn_s: float = 0.001  # for frames of one connection until others have their turn: a flood takes 12 µs a frame
    call_s: float = 10.0  # to send a request, and to answer a call that is no stream


class _Http2(h2.connection.H2Connection):
    """h2 with less memory: by default it remembers 65,536 closed streams of each connection."""

    MAX_CLOSED_STREAMS = 64


class Connection(asyncio.Protocol):
    """Both ends of a connection have this in common."""

    def __init__(self, limits: Limits, *, is_client: bool) -> None:
        self.limits = limits
        config = h2.config.H2Configuration(
            client_side=is_client,
            header_encoding=None,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
        self._http = _Http2(config)
        settings = {
            h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: limits.calls,
            h2.settings.SettingCodes.MAX_HEADER_LIST_SIZE: limits.header_bytes,
        }
        if is_client:
            settings[h2.settings.SettingCodes.ENABLE_PUSH] = 0
        self._http.local_settings = h2.settings.Settings(client=is_client, initial_values=settings)
        self._http.decoder.max_header_list_size = limits.header_bytes
        self._transport: asyncio.Transport | None = None
        self._room = asyncio.Event()
        self._received = FrameCutter(0 if is_client else PREFACE_BYTES)
        self._is_paused = False  # the peer does not read
        self._is_behind = False  # there may be frames that were not looked at
        self._has_turn = False  # for them, soon

    # What a subclass does with events

    def on_headers(self, stream_id: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Take headers or trailers."""

    def on_data(self, stream_id: int, data: bytes) -> None:
        """Take a part of a body."""

    def on_stream_end(self, stream_id: int) -> None:
        """Hear that the peer has said everything on a stream."""

    def on_reset(self, stream_id: int, code: int) -> None:
        """Hear that the peer ended a stream at once."""

    def on_end(self, reason: str) -> None:
        """Hear that nothing more comes or goes on this connection; may be called twice."""

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the preface."""
        self._transport = cast("asyncio.Transport", transport)
        self._http.initiate_connection()
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Let h2 judge the frames, and hand on what it makes of them."""
        self._received.feed(data)
        self._take_turn()

    def _take_turn(self) -> None:
        """Work through frames for as long as a turn lasts: others have theirs in between."""
        self._has_turn = False
        if not self.is_open:
            return
        try:
            self._is_behind = self._work_until(time.monotonic() + self.limits.turn_s)
        except FrameTooLong as error:
            self.close(str(error), h2.errors.ErrorCodes.FRAME_SIZE_ERROR)
        except h2.exceptions.ProtocolError as error:
            self.close(f"protocol error: {error}")
        except Exception as error:  # noqa: BLE001 - the bytes are the peer's: a fault that they find ends this connection alone
            self.abort(f"unreadable bytes: {error!r}")
        else:
            self.flush()
            self._pace()

    def _work_until(self, end: float) -> bool:
        """Return whether there may be more frames."""
        while self.is_open and (frame := self._received.next_frame(self._http.max_inbound_frame_size)):
            for event in self._http.receive_data(frame):
                self._dispatch(event)
            if time.monotonic() >= end:
                return True
        return False

    def _pace(self) -> None:
        """Read nothing while frames wait for their turn, nor while the peer does not read: answers would pile up."""
        if self._transport is None:
            return
        if self._is_paused or self._is_behind:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
        if self._is_behind and not self._is_paused and not self._has_turn:
            self._has_turn = True
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _dispatch(self, event: h2.events.Event) -> None:
        if isinstance(event, (h2.events.RequestReceived, h2.events.ResponseReceived, h2.events.TrailersReceived)):
            self.on_headers(event.stream_id, event.headers)
        elif isinstance(event, h2.events.DataReceived):
            # Given back at once: what may be held is limited by the length of a message.
            self._http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            self.on_data(event.stream_id, event.data)
        elif isinstance(event, h2.events.StreamEnded):
            self.on_stream_end(event.stream_id)
        elif isinstance(event, h2.events.StreamReset):
            self.on_reset(event.stream_id, int(event.error_code))
        elif isinstance(event, (h2.events.WindowUpdated, h2.events.RemoteSettingsChanged)):
            self._room.set()
        elif isinstance(event, h2.events.ConnectionTerminated):
            self.close("the peer said goodbye")

    def pause_writing(self) -> None:
        """Wait until the peer has read what it was sent."""
        self._is_paused = True
        self._pace()

    def resume_writing(self) -> None:
        """Go on."""
        self._is_paused = False
        self._pace()
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody who waits."""
        self._transport = None
        self._room.set()
        self.on_end(f"connection lost: {exc}" if exc else "connection closed")

    # Sending

    @property
    def is_open(self) -> bool:
        """Whether anything can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def flush(self) -> None:
        """Hand to the socket what h2 has ready."""
        data = self._http.data_to_send()
        if data and self.is_open and self._transport is not None:
            self._transport.write(data)

    def next_stream(self) -> int:
        """Return the number of a stream to open (clients)."""
        return self._http.get_next_available_stream_id()

    def send_headers(self, stream_id: int, headers: Headers, *, is_last: bool = False) -> None:
        """Put headers or trailers in the queue. Raises OSError where the stream or connection is gone."""
        try:
            self._http.send_headers(stream_id, headers, end_stream=is_last)
        except h2.exceptions.ProtocolError as error:
            raise ConnectionResetError(str(error)) from error

    async def send_data(self, stream_id: int, data: bytes, *, is_last: bool = False) -> None:
        """Put data in the queue, as the peer gives room for it. Raises OSError like `send_headers`."""
        sent = 0
        while True:
            room = self._room_for(stream_id)
            if room == 0:
                self.flush()
                self._room.clear()
                await self._room.wait()
                continue
            part = data[sent : sent + room]
            sent += len(part)
            is_done = sent == len(data)
            try:
                self._http.send_data(stream_id, part, end_stream=is_last and is_done)
            except h2.exceptions.ProtocolError as error:
                raise ConnectionResetError(str(error)) from error
            if is_done:
                return

    def _room_for(self, stream_id: int) -> int:
        if not self.is_open:
            raise ConnectionResetError("connection closed")
        try:
            window = self._http.local_flow_control_window(stream_id)
        except h2.exceptions.ProtocolError as error:
            raise ConnectionResetError(str(error)) from error
        return 0 if self._is_paused else max(0, min(window, self._http.max_outbound_frame_size))

    def end_stream(self, stream_id: int) -> None:
        """Tell the peer that the rest of its request is not needed; a stream that has ended is left alone."""
        with suppress(h2.exceptions.ProtocolError):
            self._http.reset_stream(stream_id, h2.errors.ErrorCodes.NO_ERROR)
        self.flush()

    def close(self, reason: str, code: h2.errors.ErrorCodes = h2.errors.ErrorCodes.NO_ERROR) -> None:
        """Say goodbye and hang up; what is in the queue is still sent, if the peer reads it soon."""
        if self.is_open and self._transport is not None:
            with suppress(h2.exceptions.ProtocolError):  # said already
                self._http.close_connection(code)
            self.flush()
            self._transport.close()
            if self._transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(_LINGER_S, self._transport.abort)
        self._room.set()
        self.on_end(reason)

    def abort(self, reason: str) -> None:
        """Hang up at once."""
        if self._transport is not None:
            self._transport.abort()
        self._room.set()
        self.on_end(reason)
