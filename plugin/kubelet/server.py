"""The daemon's own socket in the kubelet's folder. Not here: what is answered on it (`service`)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from plugin.errors import KubeletError
from plugin.kubelet.folder import SocketAddress, SocketIdentity, socket_identity
from plugin.rpc.server import Server

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from plugin.log import Journal
    from plugin.rpc.serving import Method


class PluginServer:
    """A gRPC server on `<folder>/<name>`."""

    def __init__(self, folder: Path, name: str, methods: Mapping[str, Method], journal: Journal) -> None:
        self._folder = folder
        self._name = name
        self._methods = methods
        self._journal = journal
        self._server: Server | None = None
        self._address: SocketAddress | None = None
        self._identity: SocketIdentity | None = None

    def is_in_place(self) -> bool:
        """Whether the socket of this server is the one that a kubelet would reach."""
        return self._identity is not None and self._identity == socket_identity(self._folder / self._name)

    async def serve(self) -> None:
        """Serve on a new socket; one that was there before is stopped and replaced."""
        await self.stop(grace_s=0)
        try:
            self._address = SocketAddress(self._folder, self._name)
            self._server = Server(self._methods, self._journal)
            await self._server.start(self._address.path)
        except OSError as error:
            await self.stop(grace_s=0)
            problem = f"{self._folder / self._name} cannot be served: {(error.strerror or str(error)).lower()}"
            raise KubeletError(problem, "does the folder exist, and may the daemon write to it?") from error
        self._identity = socket_identity(self._folder / self._name)

    async def stop(self, grace_s: float) -> None:
        """End every call within `grace_s`, and remove the socket unless another one has its name."""
        is_ours = self.is_in_place()
        if self._server is not None:
            await self._server.stop(grace_s)
        if is_ours:
            with suppress(OSError):  # a file system that became read-only: the next server replaces it, or says so
                (self._folder / self._name).unlink(missing_ok=True)
        if self._address is not None:
            self._address.close()
        self._server = self._address = self._identity = None
