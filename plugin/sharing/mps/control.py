"""Speaks with a control daemon, through NVIDIA's own program: its protocol on the socket is not documented."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.base.errors import MpsError
from plugin.sharing.mps import protocol
from plugin.sharing.mps.folders import keep_own
from plugin.sharing.mps.programs import run_program
from plugin.sharing.mps.protocol import ShownLimits

if TYPE_CHECKING:
    from plugin.sharing.mps.plan import MpsDaemon

PROGRAM = Path("/usr/bin/nvidia-cuda-mps-control")  # in every package of every distribution
PROTOCOL = {"CUDA_MPS_PROTOCOL_VERSION": "2"}  # newer drivers have a second one


@dataclass(frozen=True)
class Control:
    """The program as a client; each call ends within `timeout_s` or raises MpsError."""

    program: Path
    timeout_s: float = 5.0

    async def read_limits(self, daemon: MpsDaemon) -> ShownLimits:
        """Return the ceilings for servers to come; one that tells them works."""
        threads = await self._ask(daemon, protocol.GET_THREADS)
        return ShownLimits(threads, await self._ask(daemon, protocol.get_memory(daemon)))

    async def set_limits(self, daemon: MpsDaemon) -> None:
        """Set the ceilings, for servers to come and for new clients of those that run."""
        commands = list(protocol.set_limits(daemon))
        for server in await self._servers(daemon):
            commands += protocol.set_server_limits(daemon, server)
        for command in commands:
            await self._ask(daemon, command)

    async def list_clients(self, daemon: MpsDaemon) -> tuple[int, ...]:
        """Return the processes that use the GPU through MPS."""
        found: list[int] = []
        for server in await self._servers(daemon):
            found += protocol.parse_pids(await self._ask(daemon, protocol.list_clients(server)))
        return tuple(found)

    async def quit(self, daemon: MpsDaemon) -> None:
        """Have the control daemon and its servers end."""
        await self._ask(daemon, protocol.QUIT)

    async def _servers(self, daemon: MpsDaemon) -> tuple[int, ...]:
        return protocol.parse_pids(await self._ask(daemon, protocol.LIST_SERVERS))

    async def _ask(self, daemon: MpsDaemon, command: str) -> str:
        """Ask through a socket of root's: one that another user has put in its place would answer anything."""
        keep_own(daemon)
        environment = {**PROTOCOL, "CUDA_MPS_PIPE_DIRECTORY": str(daemon.pipe)}
        try:
            return await run_program([str(self.program)], self.timeout_s, said=f"{command}\n", environment=environment)
        except MpsError as error:
            raise MpsError(f"its control daemon: {error.message}", f"see {daemon.log}/control.log") from error
