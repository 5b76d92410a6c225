"""A kubelet that takes a registration and ends its stream at once, again and again."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

from plugin.base.log import Logger
from plugin.kubelet import KUBELET_SOCKET
from plugin.kubelet.device_plugin import api
from plugin.kubelet.registration.call import METHOD
from plugin.kubelet.registration.link import Link, Timing
from plugin.kubelet.rpc.server import Server
from plugin.kubelet.rpc.serving import Unary
from plugin.system.sockets import SocketAddress

if TYPE_CHECKING:
    from pathlib import Path

TICK_S = 0.125
TICKS = 240


class Forgetful:
    """A kubelet in the same loop. It notes when it was registered with, by a clock that the test moves."""

    def __init__(self, root: Path) -> None:
        self.now = 0.0
        self.times: list[float] = []
        self.said: list[str] = []
        self.link = Link(
            resource="nvidia.com/gpu",
            kubelet_root=root,
            logger=Logger(),
            on_state=self.said.append,
            timing=Timing(look_s=0.01, stream_gap_s=0.0, backoff_max_s=8.0),
            clock=lambda: self.now,
        )

    async def register(self, _request: api.RegisterRequest) -> api.Empty:
        self.times.append(self.now)
        with self.link.publisher.stream():
            pass
        return api.Empty()

    async def run(self) -> None:
        """Let half a minute pass, in small steps."""
        server = Server({METHOD: Unary(api.RegisterRequest, self.register)}, Logger())
        address = SocketAddress(self.link.folder, KUBELET_SOCKET)
        await server.start(address.path)
        running = asyncio.ensure_future(self.link.run())
        for _ in range(TICKS):
            self.now += TICK_S
            self.link.publisher.stream_ended.set()
            await asyncio.sleep(0.01)
        self.link.stop()
        await running
        await server.stop(grace_s=0)
        address.close()


def test_a_registration_that_is_not_kept_is_repeated_with_growing_pauses(tmp_path: Path) -> None:
    """It was repeated without any: eight gpus with 16,384 replicas each were registered 16 times in 18 s."""
    (tmp_path / "device-plugins").mkdir()
    kubelet = Forgetful(tmp_path)
    asyncio.run(kubelet.run())

    pauses = [later - earlier for earlier, later in itertools.pairwise(kubelet.times)]
    assert 4 <= len(pauses) <= 10
    assert pauses[-1] > 4 * pauses[1]
    assert kubelet.said[-1] == f"the kubelet did not keep the last {len(kubelet.times)} registrations of nvidia.com/gpu"
