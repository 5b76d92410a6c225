"""Makes one call on a connection of its own, within a deadline.

Enough for what the daemon asks of others; whoever has many calls to make wants a connection that stays.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from plugin.base.errors import os_reason
from plugin.kubelet.rpc.codec import DecodeError, Message, decode, encode
from plugin.kubelet.rpc.connection import Connection, Limits
from plugin.kubelet.rpc.framing import MessageReader, frame_message
from plugin.kubelet.rpc.status import CallError, Code, decode_detail, format_timeout, parse_code

if TYPE_CHECKING:
    from collections.abc import Iterable

_Response = TypeVar("_Response", bound=Message)
# What a reset stream means to a caller: PROTOCOL-HTTP2.md, "Errors".
_CODE_OF_RESET = {
    0x7: Code.UNAVAILABLE,  # REFUSED_STREAM
    0x8: Code.CANCELLED,  # CANCEL
    0xB: Code.RESOURCE_EXHAUSTED,  # ENHANCE_YOUR_CALM
    0xC: Code.PERMISSION_DENIED,  # INADEQUATE_SECURITY
}
_CODE_OF_HTTP = {
    b"400": Code.INTERNAL,
    b"401": Code.UNAUTHENTICATED,
    b"403": Code.PERMISSION_DENIED,
    b"404": Code.UNIMPLEMENTED,
    b"429": Code.UNAVAILABLE,
    b"502": Code.UNAVAILABLE,
    b"503": Code.UNAVAILABLE,
    b"504": Code.UNAVAILABLE,
}


class _ClientConnection(Connection):
    """A connection for one call; `answer` becomes the bytes of the one message, or a CallError."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits, is_client=True)
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._reader = MessageReader(limits.message_bytes)
        self._messages: list[bytes] = []
        self._headers: dict[bytes, bytes] = {}

    def on_headers(self, stream_id: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Keep headers and trailers; an answer that is not gRPC is an error."""
        self._headers.update(headers)
        status = self._headers.get(b":status", b"")
        if status != b"200":
            self._fail(_CODE_OF_HTTP.get(status, Code.UNKNOWN), f"http status {status.decode('latin-1')!a}")

    def on_data(self, stream_id: int, data: bytes) -> None:
        """Collect the answer: one message, so that no peer makes a call hold more than that."""
        if self.answer.done():
            return
        try:
            self._messages += self._reader.feed(data)
            if len(self._messages) > 1:
                self._fail(Code.INTERNAL, "several answers instead of one")
        except CallError as error:
            self._fail(error.code, error.detail)

    def on_stream_end(self, stream_id: int) -> None:
        """Take the status."""
        code = parse_code(self._headers.get(b"grpc-status"))
        if code is not Code.OK:
            self._fail(code, decode_detail(self._headers.get(b"grpc-message", b"")))
        elif len(self._messages) != 1 or not self._reader.is_between_messages:
            self._fail(Code.INTERNAL, f"{len(self._messages)} answers instead of one")
        elif not self.answer.done():
            self.answer.set_result(self._messages[0])

    def on_reset(self, stream_id: int, code: int) -> None:
        """Fail with what the reset means."""
        self._fail(_CODE_OF_RESET.get(code, Code.INTERNAL), f"stream reset with error code {code}")

    def on_end(self, reason: str) -> None:
        """Fail unless the answer is there."""
        self._fail(Code.UNAVAILABLE, reason)

    def _fail(self, code: Code, detail: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(CallError(code, detail))
            self.answer.exception()  # a caller that gave up has no use for it

    async def call(self, method: str, request: bytes, deadline_s: float) -> bytes:
        """Make the call."""
        stream_id = self.next_stream()
        headers = [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", method.encode()),
            (b":authority", b"localhost"),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
            (b"user-agent", b"grapnel-node"),
            (b"grpc-timeout", format_timeout(deadline_s)),
        ]
        self.send_headers(stream_id, headers)
        await self.send_data(stream_id, frame_message(request), is_last=True)
        self.flush()
        return await self.answer


async def call_bytes(
    path: str, method: str, request: bytes, *, deadline_s: float, limits: Limits | None = None
) -> bytes:
    """Call `method` ("/package.Service/Method") on the socket at `path` and return its answer; raises CallError."""
    try:
        return await asyncio.wait_for(_call(path, method, request, deadline_s, limits or Limits()), deadline_s)
    except asyncio.TimeoutError as error:
        raise CallError(Code.DEADLINE_EXCEEDED, f"no answer within {deadline_s:g} s") from error
    except OSError as error:
        raise CallError(Code.UNAVAILABLE, os_reason(error)) from error


async def call_unary(
    path: str,
    method: str,
    request: Message,
    response: type[_Response],
    *,
    deadline_s: float,
    limits: Limits | None = None,
) -> _Response:
    """Make the call of `call_bytes` with messages; a malformed answer is a CallError too."""
    answer = await call_bytes(path, method, encode(request), deadline_s=deadline_s, limits=limits)
    try:
        return decode(response, answer)
    except DecodeError as error:
        raise CallError(Code.INTERNAL, f"the answer is no {response.__name__}: {error}") from error


async def _call(path: str, method: str, request: bytes, deadline_s: float, limits: Limits) -> bytes:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_unix_connection(lambda: _ClientConnection(limits), path)
    try:
        return await connection.call(method, request, deadline_s)
    finally:
        connection.close("the call has ended")
