"""The calls on one connection, from the server's side: request in, answers and a status out.

A call is a task from the moment its request is complete until its status is sent. It ends early when the
caller resets it, when its time is up, or with the connection. Not here: who may connect (`server`).
"""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plugin.kubelet.rpc.codec import DecodeError, Message, decode, encode
from plugin.kubelet.rpc.connection import Connection, Headers, Limits
from plugin.kubelet.rpc.framing import MessageReader, frame_message
from plugin.kubelet.rpc.status import CallError, Code, encode_detail, parse_timeout

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from plugin.base.log import Logger

_RESPONSE: Headers = [(b":status", b"200"), (b"content-type", b"application/grpc")]
_OK: Headers = [(b"grpc-status", b"0")]
_MAX_SHOWN = 100
_NOT_ONE = "the request is not exactly one message"
_NOT_GRPC: Headers = [(b":status", b"415")]


@dataclass(frozen=True)
class Unary:
    """One request, one answer. It has `Limits.call_s` to answer."""

    request: type[Message]
    answer: Callable[[Any], Awaitable[Any]]


@dataclass(frozen=True)
class ServerStream:
    """One request, any number of answers: each is handed to `send`, which returns when there was room for it."""

    request: type[Message]
    serve: Callable[[Any, Callable[[Any], Awaitable[None]]], Awaitable[None]]


Method = Unary | ServerStream


@dataclasses.dataclass(eq=False)
class _Call:
    """What is known of a call that has not ended."""

    stream_id: int
    method: Method
    reader: MessageReader
    timeout_s: float | None  # what the caller allows
    messages: list[bytes]
    task: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None
    is_answering: bool = False  # headers are sent: an error goes into trailers

    def collect(self, data: bytes) -> None:
        """Take a part of the request; raises CallError, at its second message too: no call holds more than one."""
        self.messages += self.reader.feed(data)
        if len(self.messages) > 1:
            raise CallError(Code.INTERNAL, _NOT_ONE)


@dataclass(frozen=True)
class Owner:
    """Whom a connection asks and tells: `admit` decides whether it may stay, the others hear what happens on it."""

    admit: Callable[[ServerConnection, socket.socket], bool]
    stream_begun: Callable[[ServerConnection], None]
    gone: Callable[[ServerConnection], None]


class ServerConnection(Connection):
    """One client."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        logger: Logger,
        limits: Limits,
        owner: Owner,
    ) -> None:
        super().__init__(limits, is_client=False)
        self._methods = methods
        self._log = logger
        self._owner = owner
        self._calls: dict[int, _Call] = {}
        self._is_retired = False
        self._has_streamed = False

    @property
    def is_idle(self) -> bool:
        """Whether no call is under way."""
        return not self._calls

    @property
    def is_over(self) -> bool:
        """Whether its stream has ended, and no call is under way."""
        return self._has_streamed and self.is_idle

    def retire(self) -> set[asyncio.Task[None]]:
        """Accept no further call; return those under way."""
        self._is_retired = True
        return {call.task for call in self._calls.values() if call.task is not None}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, or hang up at once."""
        if self._owner.admit(self, transport.get_extra_info("socket")):
            super().connection_made(transport)
        else:
            transport.abort()  # type: ignore[attr-defined] # a socket's transport always has it

    # Events

    def on_headers(self, stream_id: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Open a call; a second block of headers is trailers, which a client has no use for."""
        if stream_id in self._calls:
            return
        found = dict(headers)
        if found.get(b":method") != b"POST" or not found.get(b"content-type", b"").startswith(b"application/grpc"):
            self._end_early(stream_id, _NOT_GRPC)
            return
        try:
            call = self._open(stream_id, found)
        except CallError as error:
            self._refuse(stream_id, error)
            return
        self._calls[stream_id] = call
        limit_s = self.limits.call_s if call.timeout_s is None else min(call.timeout_s, self.limits.call_s)
        call.timer = asyncio.get_running_loop().call_later(limit_s, self._time_is_up, call)

    def _open(self, stream_id: int, headers: Mapping[bytes, bytes]) -> _Call:
        if self._is_retired:
            raise CallError(Code.UNAVAILABLE, "the daemon stops")
        path = headers.get(b":path", b"").decode("ascii", "replace")
        method = self._methods.get(path)
        if method is None:
            raise CallError(Code.UNIMPLEMENTED, f"unknown method {path[:_MAX_SHOWN]!a}")
        timeout = headers.get(b"grpc-timeout")
        timeout_s = None if timeout is None else parse_timeout(timeout)
        if timeout_s == 0:
            raise CallError(Code.DEADLINE_EXCEEDED, "the caller gives the call no time")
        return _Call(stream_id, method, MessageReader(self.limits.message_bytes), timeout_s, [])

    def on_data(self, stream_id: int, data: bytes) -> None:
        """Collect the request."""
        call = self._calls.get(stream_id)
        if call is None or call.task is not None:
            return
        try:
            call.collect(data)
        except CallError as error:
            self._end(call)
            self._refuse(stream_id, error)

    def on_stream_end(self, stream_id: int) -> None:
        """Begin to answer."""
        call = self._calls.get(stream_id)
        if call is None or call.task is not None:
            return
        if isinstance(call.method, ServerStream) and call.timer is not None:
            call.timer.cancel()  # it limited the request; a stream lasts as long as the caller allows
            call.timer = None
            if call.timeout_s is not None:
                call.timer = asyncio.get_running_loop().call_later(call.timeout_s, self._time_is_up, call)
        call.task = asyncio.ensure_future(self._answer(call))
        if isinstance(call.method, ServerStream):
            self._has_streamed = True
            self._owner.stream_begun(self)

    def on_reset(self, stream_id: int, code: int) -> None:  # why does not matter
        """Forget a call that the client gave up."""
        call = self._calls.get(stream_id)
        if call is not None:
            self._end(call)

    def on_end(self, reason: str) -> None:
        """Forget every call."""
        if self._calls:
            self._log.debug("calls ended with their connection", calls=len(self._calls), reason=reason)
        for call in tuple(self._calls.values()):
            self._end(call)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        super().connection_lost(exc)
        self._owner.gone(self)

    # Answering

    async def _answer(self, call: _Call) -> None:
        """Answer from request to status. Cancelled where the client has gone."""
        try:
            await self._serve(call)
            status = _OK
        except CallError as error:
            status = _status_of(error)
        except OSError:
            self._end(call)
            return
        except Exception as error:  # noqa: BLE001 - a caller that hears nothing would take the daemon for dead
            self._log.warning("bug in an answer", call=call.method.request.__name__, error=repr(error))
            status = _status_of(CallError(Code.INTERNAL, "bug in the daemon, see its log"))
        self._end(call)
        self._send_status(call, status)

    async def _serve(self, call: _Call) -> None:
        if len(call.messages) != 1 or not call.reader.is_between_messages:
            raise CallError(Code.INTERNAL, _NOT_ONE)
        try:
            request = decode(call.method.request, call.messages[0])
        except DecodeError as error:
            raise CallError(Code.INTERNAL, f"the request is no {call.method.request.__name__}: {error}") from error
        if isinstance(call.method, Unary):
            await self._send(call, await call.method.answer(request))
            return

        async def send(message: Message) -> None:
            await self._send(call, message)
            self.flush()

        await call.method.serve(request, send)

    async def _send(self, call: _Call, message: Message) -> None:
        if not call.is_answering:
            call.is_answering = True
            self.send_headers(call.stream_id, _RESPONSE)
        await self.send_data(call.stream_id, frame_message(encode(message)))

    def _refuse(self, stream_id: int, error: CallError) -> None:
        self._end_early(stream_id, _RESPONSE + _status_of(error))

    def _end_early(self, stream_id: int, headers: Headers) -> None:
        """Answer while the request may still be coming; a stream that is gone already needs none."""
        with suppress(OSError):
            self.send_headers(stream_id, headers, is_last=True)
            self.end_stream(stream_id)

    def _send_status(self, call: _Call, status: Headers) -> None:
        with suppress(OSError):
            self.send_headers(call.stream_id, status if call.is_answering else _RESPONSE + status, is_last=True)
            self.flush()

    def _time_is_up(self, call: _Call) -> None:
        if call.stream_id in self._calls:
            self._end(call)
            self._send_status(call, _status_of(CallError(Code.DEADLINE_EXCEEDED, "the call took too long")))
            self.end_stream(call.stream_id)

    def _end(self, call: _Call) -> None:
        """Forget a call; its task is stopped, unless it is the one that says so."""
        self._calls.pop(call.stream_id, None)
        if call.timer is not None:
            call.timer.cancel()
        if call.task is not None and call.task is not asyncio.current_task():
            call.task.cancel()


def _status_of(error: CallError) -> Headers:
    return [(b"grpc-status", b"%d" % error.code), (b"grpc-message", encode_detail(error.detail))]
