"""The daemon's own socket in the kubelet's folder. Not here: what is answered on it (`service`)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from plugin.base.errors import KubeletError, os_reason
from plugin.kubelet.rpc.server import Server
from plugin.system.sockets import SocketAddress, SocketIdentity, socket_identity

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from plugin.base.log import Logger
    from plugin.kubelet.rpc.serving import Method


class PluginServer:
    """A gRPC server on a socket in `folder`; its name is given each time."""

    def __init__(self, folder: Path, methods: Mapping[str, Method], logger: Logger) -> None:
        self._folder = folder
        self._name = ""
        self._methods = methods
        self._log = logger
        self._server: Server | None = None
        self._address: SocketAddress | None = None
        self._identity: SocketIdentity | None = None

    @property
    def live_connections(self) -> int:
        """How many peers have a stream, or may still open one."""
        return self._server.live_connections if self._server is not None else 0

    @property
    def open_connections(self) -> int:
        """How many peers are connected."""
        return self._server.open_connections if self._server is not None else 0

    def is_in_place(self) -> bool:
        """Whether the socket of this server is the one that a kubelet would reach."""
        return self._identity is not None and self._identity == socket_identity(self._folder / self._name)

    async def serve(self, name: str) -> None:
        """Serve on a new socket; one that was there before is stopped and replaced."""
        await self.stop(grace_s=0)
        self._name = name
        self._server = Server(self._methods, self._log)
        try:
            await self._listen(self._server)
        except KubeletError:
            await self.stop(grace_s=0)
            raise

    async def restore(self, name: str) -> None:
        """Make another socket where it was removed; clients that are connected stay connected."""
        if self._server is not None:
            self._name = name
            await self._listen(self._server)

    async def _listen(self, server: Server) -> None:
        self._let_go_of_folder()
        try:
            self._address = SocketAddress(self._folder, self._name)
            await server.start(self._address.path)
        except OSError as error:
            problem = f"{self._folder / self._name} cannot be served: {os_reason(error)}"
            raise KubeletError(problem, "does the folder exist, and may the daemon write to it?") from error
        self._identity = socket_identity(self._folder / self._name)

    async def stop(self, grace_s: float) -> None:
        """End every call within `grace_s`, and remove the socket unless another one has its name."""
        if self._server is not None:
            await self._server.stop(grace_s)
        if self.is_in_place():  # now: another process may have taken its place meanwhile
            with suppress(OSError):  # a file system that became read-only: the next server replaces it, or says so
                (self._folder / self._name).unlink(missing_ok=True)
        self._let_go_of_folder()
        self._server = self._identity = None

    def _let_go_of_folder(self) -> None:
        if self._address is not None:
            self._address.close()
        self._address = None
