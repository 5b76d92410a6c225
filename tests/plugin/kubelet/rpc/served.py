"""A server with a handful of calls, in an event loop of its own thread."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from plugin.base.log import Logger
from plugin.kubelet.device_plugin import api
from plugin.kubelet.rpc.server import Server
from plugin.kubelet.rpc.serving import ServerStream, Unary
from plugin.kubelet.rpc.status import CallError, Code

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from pathlib import Path
    from typing import Self

    from plugin.kubelet.rpc.codec import Message
    from plugin.kubelet.rpc.connection import Limits
    from plugin.kubelet.rpc.serving import Method

Text = api.CDIDevice  # any message with one text
Texts = api.ContainerAllocateRequest  # any message with a list of them


@dataclass
class Calls:
    """What the calls saw."""

    begun: int = 0
    cancelled: int = 0
    sent: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    async def echo(self, request: Message) -> Message:
        return request

    async def fail(self, request: Texts) -> Text:
        raise CallError(Code[request.devices_ids[0]], request.devices_ids[1])

    async def crash(self, _request: Text) -> Text:
        raise ZeroDivisionError

    async def hang(self, _request: Text) -> Text:
        self.begun += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled += 1
            self.ended.set()
        raise AssertionError

    async def repeat(self, request: Texts, send: Callable[[Text], Awaitable[None]]) -> None:
        """Send the first text as often as the second one says."""
        self.begun += 1
        try:
            for _ in range(int(request.devices_ids[1])):
                await send(Text(name=request.devices_ids[0]))
                self.sent += 1
        finally:
            self.ended.set()

    async def watch(self, request: Text, send: Callable[[Text], Awaitable[None]]) -> None:
        """Send a text and never end."""
        await send(request)
        await self.hang(request)


class Served:
    """Serves on `<folder>/s` while the `with` lasts."""

    def __init__(self, folder: Path, limits: Limits | None = None) -> None:
        self.path = str(folder / "s")
        self.target = f"unix:{self.path}"
        self.calls = Calls()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        methods: dict[str, Method] = {
            "/t.T/Echo": Unary(Text, self.calls.echo),
            "/t.T/EchoAll": Unary(Texts, self.calls.echo),
            "/t.T/Fail": Unary(Texts, self.calls.fail),
            "/t.T/Crash": Unary(Text, self.calls.crash),
            "/t.T/Hang": Unary(Text, self.calls.hang),
            "/t.T/Repeat": ServerStream(Texts, self.calls.repeat),
            "/t.T/Watch": ServerStream(Text, self.calls.watch),
        }
        self.server = Server(methods, Logger(), limits)

    def run(self, work: Coroutine[Any, Any, Any], timeout_s: float = 60) -> Any:
        """Run something in the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.run(self.server.start(self.path))
        except OSError:
            self._end_loop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.server.stop(0.1))
        self.run(self._settle())
        self._end_loop()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _settle(self) -> None:
        """Let closed connections be told."""
        while self.server.open_connections:  # noqa: ASYNC110 - the server has nobody to tell
            await asyncio.sleep(0.001)
