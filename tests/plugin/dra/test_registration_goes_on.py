"""The driver of claims stays where the kubelet finds it, whatever happens to one look."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from plugin.dra.registration import Registration
from plugin.kubelet.device_plugin.server import PluginServer
from plugin.kubelet.registration.watcher import REGISTRY
from tests.plugin.node_object.written_log import WrittenLog
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_look_that_fails_is_told_and_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task ended without a word, and no claim of the node was served any more."""
    log, serve, failures = WrittenLog(), PluginServer.serve, [RuntimeError("out of order")]

    async def fail_once(server: PluginServer, name: str) -> None:
        if failures:
            raise failures.pop()
        await serve(server, name)

    async def run() -> None:
        registration = Registration(tmp_path, {}, lambda: None, lambda _problem: None, log)
        task = asyncio.ensure_future(registration.run())
        await asyncio.to_thread(wait_until, lambda: bool(log.lines("out of order")))
        tmp_path.joinpath(REGISTRY, "another").touch()
        await asyncio.to_thread(wait_until, lambda: bool(list(tmp_path.joinpath(REGISTRY).glob("*.sock"))))
        registration.stop()
        await task

    tmp_path.joinpath(REGISTRY).mkdir()
    monkeypatch.setattr(PluginServer, "serve", fail_once)
    asyncio.run(asyncio.wait_for(run(), 60))
    assert log.lines("resolved")
