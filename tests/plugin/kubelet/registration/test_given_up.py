"""A registration that is given up in the very moment in which the kubelet refuses it."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest

from plugin.base.log import Logger
from plugin.kubelet import KUBELET_SOCKET
from plugin.kubelet.device_plugin import api
from plugin.kubelet.registration.call import METHOD
from plugin.kubelet.registration.link import Link
from plugin.kubelet.rpc.server import Server
from plugin.kubelet.rpc.serving import Unary
from plugin.kubelet.rpc.status import CallError, Code
from plugin.system.sockets import SocketAddress

if TYPE_CHECKING:
    from pathlib import Path

TURNS = 24  # of the loop: more than it takes for a refusal to get from the kubelet to the link


class Refusing:
    """A kubelet in the same loop that refuses every plugin; the link is stopped so many turns of the loop later."""

    def __init__(self, turns: int) -> None:
        self._turns = turns
        self.link: Link | None = None
        self.refused = 0

    async def register(self, _request: api.RegisterRequest) -> api.Empty:
        self.refused += 1
        self._stop_in(self._turns)
        raise CallError(Code.UNKNOWN, "failed to dial device plugin")

    def _stop_in(self, turns: int) -> None:
        assert self.link is not None
        if turns:
            asyncio.get_running_loop().call_soon(self._stop_in, turns - 1)
        else:
            self.link.stop()


async def register_and_stop(root: Path, turns: int) -> list[str]:
    """Return what asyncio had to complain of."""
    complaints: list[str] = []

    def complain(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        complaints.append(f"{context['message']}: {context.get('exception')!r}")

    asyncio.get_running_loop().set_exception_handler(complain)
    kubelet = Refusing(turns)
    link = kubelet.link = Link(resource="a.b/c", kubelet_root=root, logger=Logger(), on_state=lambda _: None)
    server = Server({METHOD: Unary(api.RegisterRequest, kubelet.register)}, Logger())
    address = SocketAddress(link.folder, KUBELET_SOCKET)
    await server.start(address.path)
    await link.run()
    await server.stop(grace_s=0)
    address.close()
    del link, kubelet
    gc.collect()
    return complaints


@pytest.mark.parametrize("turns", range(TURNS))
def test_a_refusal_in_the_moment_of_the_end_is_no_fault_of_anybody(tmp_path: Path, turns: int) -> None:
    """Before Python 3.12 `wait_for` raises what has happened already instead of being cancelled."""
    (tmp_path / "device-plugins").mkdir()

    assert asyncio.run(register_and_stop(tmp_path, turns)) == []
