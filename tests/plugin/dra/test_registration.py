"""A kubelet takes the driver, refuses it, or hangs up: over a real socket, as the suite of the kubelet has it."""

from __future__ import annotations

import asyncio
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import grpc

from lab.kubelet.proto.pluginregistration.v1 import api_pb2
from plugin.base.log import Logger
from plugin.dra.registration import Registration
from plugin.system.sockets import SocketAddress
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))
TIMEOUT_S = 30.0


async def notify(channel: grpc.aio.Channel, *, taken: bool, error: str = "") -> None:
    call = channel.unary_unary(
        "/pluginregistration.Registration/NotifyRegistrationStatus",
        request_serializer=api_pb2.RegistrationStatus.SerializeToString,
        response_deserializer=api_pb2.RegistrationStatusResponse.FromString,
    )
    await call(api_pb2.RegistrationStatus(plugin_registered=taken, error=error), timeout=TIMEOUT_S)


async def ask_who_serves(channel: grpc.aio.Channel) -> None:
    call = channel.unary_unary(
        "/pluginregistration.Registration/GetInfo",
        request_serializer=api_pb2.InfoRequest.SerializeToString,
        response_deserializer=api_pb2.PluginInfo.FromString,
    )
    assert (await call(api_pb2.InfoRequest(), timeout=TIMEOUT_S)).name == "gpu.nvidia.com"


def test_a_driver_that_is_refused_says_why_and_is_taken_when_the_kubelet_tries_again(tmp_path: Path) -> None:
    registry = tmp_path / "plugins_registry"
    registry.mkdir()
    told: list[str] = []
    taken: list[bool] = []

    async def play() -> None:
        link = Registration(tmp_path, {}, lambda: taken.append(True), told.append, Logger())
        running = asyncio.create_task(link.run())
        await asyncio.to_thread(wait_until, lambda: bool(list(registry.glob("*.sock"))))
        (socket,) = registry.glob("*.sock")
        with closing(SocketAddress(registry, socket.name)) as address:
            async with grpc.aio.insecure_channel(address.target, options=OPTIONS) as channel:
                await notify(channel, taken=False, error="version v9 is not known")
                assert "version v9 is not known" in told[-1]
                assert (taken, link.is_registered) == ([], False)
                await notify(channel, taken=True)
                await asyncio.to_thread(wait_until, lambda: taken == [True])
                assert told[-1] == ""
                assert link.is_registered
                await ask_who_serves(channel)
                assert not link.is_registered, "a kubelet that starts anew has yet to take it"
                await notify(channel, taken=True)
                assert link.is_registered
        await asyncio.to_thread(wait_until, lambda: not link.is_registered)  # it has hung up
        socket.unlink()  # a kubelet that starts clears its folder: it is there again, by another name
        await asyncio.to_thread(wait_until, lambda: bool(list(registry.glob("*.sock"))))
        assert list(registry.glob("*.sock")) != [socket]
        link.stop()
        with suppress(asyncio.CancelledError):
            await asyncio.wait_for(running, TIMEOUT_S)

    asyncio.run(play())
    assert not list(registry.glob("*.sock"))
