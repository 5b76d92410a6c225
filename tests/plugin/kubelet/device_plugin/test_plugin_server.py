"""The daemon's socket in the kubelet's folder: it is taken away by whoever put it there, and by nobody else."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from plugin.base.log import Logger
from plugin.kubelet.device_plugin.server import PluginServer
from plugin.system.sockets import SocketAddress

if TYPE_CHECKING:
    from pathlib import Path

NAME = "grapnel-a.b_c.sock"


def server_in(folder: Path) -> PluginServer:
    return PluginServer(folder, {}, Logger())


def test_a_socket_is_removed_with_its_server(tmp_path: Path) -> None:
    async def serve_and_stop() -> None:
        server = server_in(tmp_path)
        await server.serve(NAME)
        assert server.is_in_place()
        await server.stop(grace_s=0)

    asyncio.run(serve_and_stop())
    assert list(tmp_path.iterdir()) == []


def test_the_socket_of_a_server_that_came_while_another_one_ended_stays(tmp_path: Path) -> None:
    """A resource that is withdrawn and offered again at once: its kubelet found no socket."""

    async def replace_while_it_ends() -> None:
        old, new = server_in(tmp_path), server_in(tmp_path)
        await old.serve(NAME)
        address = SocketAddress(tmp_path, NAME)
        _, client = await asyncio.open_unix_connection(address.path)
        address.close()
        while not old.live_connections:  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0)
        ending = asyncio.ensure_future(old.stop(grace_s=0.2))  # the client has that long to hang up
        await asyncio.sleep(0)
        await new.serve(NAME)
        await ending
        assert new.is_in_place()
        client.close()
        await new.stop(grace_s=0)

    asyncio.run(replace_while_it_ends())
