"""The two methods of registration, and which is used: a call on `kubelet.sock`, or a socket for the kubelet to find.

The call is answered in milliseconds; the kubelet's look at `plugins_registry` takes up to a second each time
(figures: docs/decisions/0031). So `auto` calls, and is found only where a kubelet runs that has no
`kubelet.sock` (any more). Never both at once: a kubelet has one connection for a resource, whichever method made it.
Not here: when to register (`link`).
"""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plugin.kubelet.device_plugin.server import PluginServer
from plugin.kubelet.registration.call import DEVICE_PLUGINS, KubeletSocket
from plugin.kubelet.registration.watcher import PluginWatcher
from plugin.system.sockets import SocketAddress

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from plugin.base.log import Logger
    from plugin.kubelet.registration.call import Registration
    from plugin.kubelet.rpc.serving import Method

_POD_RESOURCES = "pod-resources"  # the kubelet answers there whatever becomes of its other sockets
_FOLDER_MODE = 0o750  # as the kubelet makes it


@dataclass(frozen=True)
class RegistrationMethod:
    """How to register, and the server for it."""

    registration: Registration
    server: PluginServer

    async def serve(self) -> None:
        """Serve on a new socket; whoever is connected is disconnected."""
        self.registration.prepare()
        await self.server.serve(self.registration.next_socket())

    async def restore(self) -> None:
        """Put back a socket that was removed; whoever is connected stays connected."""
        self.registration.prepare()
        await self.server.restore(self.registration.next_socket())


class RegistrationMethods:
    """Both methods for one resource; `now` is the one in use."""

    def __init__(
        self, choice: str, kubelet_root: Path, resource: str, methods: Mapping[str, Method], logger: Logger
    ) -> None:
        def method(registration: Registration) -> RegistrationMethod:
            served = {**methods, **registration.methods()}
            return RegistrationMethod(registration, PluginServer(registration.socket_folder, served, logger))

        self._root = kubelet_root
        self._log = logger
        self._call, self._watcher = (
            method(KubeletSocket(kubelet_root, resource)),
            method(PluginWatcher(kubelet_root, resource)),
        )
        self._may_change = choice == "auto"
        self.now = self._watcher if choice == "watcher" else self._call

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders in which something may change at any time; that of `kubelet.sock` is the first."""
        folder = self._call.registration.socket_folder
        return (folder,) if self.now is self._call else (folder, self.now.registration.socket_folder)

    def can_reach_kubelet(self, *, has_socket: bool) -> bool:
        """Whether there is a kubelet that could be reached: one with a `kubelet.sock`, or one that finds plugins."""
        can_be_found = self._may_change or self.now is self._watcher
        return has_socket or (can_be_found and self._watcher.registration.socket_folder.is_dir() and self._is_running())

    async def choose(self, *, has_socket: bool) -> None:
        """Switch to the method that reaches the kubelet."""
        method = self._call if has_socket else self._watcher
        if self._may_change and method is not self.now:
            await self.now.server.stop(grace_s=0)
            self.now = method

    def restore_folder(self, *, is_watched: bool) -> bool:
        """Make the folder of `kubelet.sock` again where a kubelet runs without it: it could admit no pod with devices.

        Its checkpoint is there. What the checkpoint said is not lost: the kubelet writes it from memory.
        """
        folder = self._root / DEVICE_PLUGINS
        if folder.exists() or not (is_watched or self._is_running()):
            return False
        try:
            folder.mkdir(mode=_FOLDER_MODE)
        except OSError as error:
            self._log.standing("kubelet's folder", f"{folder} is gone and cannot be made: {error.strerror}")
            return False
        hint = "it has no kubelet.sock until the kubelet is restarted"
        self._log.warning(f"{folder} was gone while a kubelet ran: made again", hint=hint)
        return True

    def _is_running(self) -> bool:
        """Whether a kubelet listens, however busy it may be."""
        try:
            address = SocketAddress(self._root / _POD_RESOURCES, "kubelet.sock")
        except OSError:
            return False
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)
            code = probe.connect_ex(address.path)
        address.close()
        return code in {0, errno.EAGAIN}

    async def stop(self, grace_s: float) -> None:
        """End every call, and remove the socket."""
        await self.now.server.stop(grace_s)
