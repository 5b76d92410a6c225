"""Runs an extender until SIGTERM."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
from typing import TYPE_CHECKING

from plugin.base.errors import ConfigError
from plugin.gpushare.extender import Extender
from plugin.gpushare.server import PATIENCE_S, extender_server
from plugin.settings.node_config import split_address

if TYPE_CHECKING:
    from plugin.base.log import Logger
    from plugin.gpushare.connections import Connections
    from plugin.gpushare.identity import Identity


def loopback(address: str) -> tuple[str, int]:
    """Return host and port of an address that only this machine reaches; raises ConfigError."""
    hint = "run it beside each kube-scheduler, as in deploy/gpushare: whoever reaches it can bind pods"
    try:
        host, port = split_address(address)
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError as error:
        raise ConfigError(f"{address}: not an address and a port", "such as 127.0.0.1:32766") from error
    if not is_loopback:
        raise ConfigError(f"{address} can be reached from other machines", hint)
    return host, port


async def run_extender(
    address: str, identity: Identity | None, resource: str, connections: Connections, logger: Logger
) -> None:
    """Serve until SIGTERM or SIGINT, then close the connections; raises ConfigError."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    host, port = loopback(address)
    extender = Extender(connections, resource, logger)
    server = extender_server(extender, logger, identity=identity)
    try:
        await server.start(host, port)
    except OSError as error:
        problem = f"{address} cannot be served: {(error.strerror or str(error)).lower()}"
        raise ConfigError(problem, "free the address, or name another one with --listen") from error
    extender.start()
    logger.info("gpushare extender", address=address, resource=resource, clients="known" if identity else "any")
    await stop.wait()
    logger.info("stopping")
    await server.close(grace_s=PATIENCE_S)
    await extender.stop()
    connections.close()
