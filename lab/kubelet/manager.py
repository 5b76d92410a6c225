"""The stand-in itself: Register, allocation, assignments, restarts."""

from __future__ import annotations

import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from lab.kubelet.device_manager import AllocationRefused, DeviceManager, Plugin, Pod
from lab.kubelet.endpoint import Endpoint, status_of
from lab.kubelet.proto.deviceplugin.v1beta1 import api_pb2
from lab.kubelet.registry import Mode, Registry, Resource
from lab.kubelet.watcher import ROUND_S, PluginWatcher
from lab.podresources.proto.api_pb2 import AllocatableResourcesResponse
from lab.podresources.server import serving
from plugin.kubelet import KUBELET_SOCKET
from plugin.system.sockets import SocketAddress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import Self

    from lab.kubelet.proto.pluginregistration.v1.api_pb2 import PluginInfo

_API_VERSION = "v1beta1"
_LOSE_S = 10.0  # for a stream to bring its first list
_HANG_S = 60.0  # the longest a hung Register can keep a test


_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Assignment:
    """Devices of one owner, and what the plugin answered for them."""

    owner: str
    resource: str
    device_ids: tuple[str, ...]
    response: api_pb2.ContainerAllocateResponse


def _admitting(call: Callable[[], _Answer]) -> _Answer:
    """Return what a plugin answers; a call that fails is the end of the pod."""
    try:
        return call()
    except grpc.RpcError as error:
        raise AllocationRefused(status_of(error)[1]) from error


class Kubelet:
    """A device manager on `<root>/device-plugins/kubelet.sock`. A context manager: started and stopped.

    With `watches_plugins` it also takes plugins whose sockets are in `<root>/plugins_registry`, with
    `has_pod_resources` it says on `<root>/pod-resources/kubelet.sock` who has which device and what is allocatable.
    """

    def __init__(
        self,
        root: Path,
        *,
        watches_plugins: bool = False,
        has_pod_resources: bool = False,
        round_s: float = ROUND_S,
    ) -> None:
        self._root = root
        self._has_pod_resources = has_pod_resources
        self._pod_resources = ExitStack()
        self.folder = root / "device-plugins"
        self.plugins_folder = root / "plugins_registry"
        self._watches_plugins = watches_plugins
        self._round_s = round_s
        self._watcher: PluginWatcher | None = None
        self.mode = Mode.SERVE
        self.registry = Registry()
        self.assignments: dict[str, Assignment] = {}
        self.device_manager = DeviceManager()  # of whole pods; assignments are single containers without a pod
        self._endpoints: dict[str, Endpoint] = {}
        self._replaced: list[Endpoint] = []  # by a second registration; the real one does not hang up on them either
        self._connecting = threading.Lock()
        self.notices_ends = threading.Event()  # of streams; cleared: only once it is set again
        self.notices_ends.set()
        self._server: grpc.Server | None = None
        self._address: SocketAddress | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Remove every socket in the folder, as the kubelet does, then serve a new kubelet.sock."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for entry in self.folder.iterdir():
            with suppress(FileNotFoundError):  # plugins come and go while the kubelet tidies up
                if stat.S_ISSOCK(entry.lstat().st_mode):
                    entry.unlink()
        self.registry = Registry()
        self._address = SocketAddress(self.folder, KUBELET_SOCKET)
        self._server = grpc.server(ThreadPoolExecutor(max_workers=4))
        self._server.add_generic_rpc_handlers((self._handler(self.registry),))
        self._server.add_insecure_port(self._address.target)
        self._server.start()
        if self._has_pod_resources:
            self._pod_resources.enter_context(serving(self._root, self.device_manager.list_response, self._allocatable))
        if self._watches_plugins:
            registry = self.registry
            self._watcher = PluginWatcher(
                self.plugins_folder, self._take, lambda name: self._disconnect(registry, name), round_s=self._round_s
            )

    def stop(self, *, leave_socket: bool = False) -> None:
        """Stop; with `leave_socket` a stale kubelet.sock stays, as after a kill."""
        server, address, self._server, self._address = self._server, self._address, None, None
        self.registry.wake()
        self._pod_resources.close()
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.stop()
        with self._connecting:
            endpoints = [*self._endpoints.values(), *self._replaced]
            self._endpoints.clear()
            self._replaced.clear()
        for endpoint in endpoints:
            endpoint.close()
        if server is None or address is None:
            return
        socket, kept = self.folder / KUBELET_SOCKET, self.folder / "kept"
        if leave_socket:
            kept.hardlink_to(socket)
        server.stop(grace=0).wait()
        if leave_socket:
            kept.rename(socket)
        address.close()

    def restart(self) -> None:
        """Restart in place. Assignments are kept, as in the kubelet's checkpoint."""
        self.stop()
        self.start()

    def set_mode(self, mode: Mode) -> None:
        """Change how Register is answered; ends a hang."""
        self.mode = mode
        self.registry.wake()

    def end_stream(self, resource: str) -> None:
        """End the list stream of one resource and nothing else; it may have ended meanwhile."""
        with self._connecting:
            endpoint = self._endpoints.get(resource)
        if endpoint is not None:
            endpoint.end_stream()

    def is_connected(self, resource: str) -> bool:
        """Whether a plugin of this resource has a connection: it ends with its stream."""
        return resource in self._endpoints

    def endpoint(self, resource: str) -> Endpoint:
        """Return the connection that a resource has now."""
        return self._endpoints[resource]

    def wait_for_devices(self, resource: str, healthy: int, timeout_s: float = 60.0) -> list[str]:
        """Wait until a resource has so many healthy devices and return them."""
        if self.registry.wait_for(lambda: len(self.healthy(resource)) == healthy, timeout_s):
            return self.healthy(resource)
        raise TimeoutError(f"{resource}: {len(self.healthy(resource))} healthy devices after {timeout_s} s")

    def healthy(self, resource: str) -> list[str]:
        """Return the devices that can be allocated or are."""
        known = self.registry.get(resource)
        return known.healthy() if known else []

    def capacity(self, resource: str) -> int:
        """Return how many devices the node status would show."""
        return self.registry.capacity(resource)

    def free(self, resource: str) -> list[str]:
        """Return the healthy devices that nobody has."""
        used = {device for assignment in self.assignments.values() for device in assignment.device_ids}
        return [device for device in self.healthy(resource) if device not in used]

    def allocate(self, resource: str, count: int, owner: str, *, device_ids: Sequence[str] | None = None) -> Assignment:
        """Give an owner `count` devices: those named, else the preference is asked where there is a choice."""
        known = self.registry.get(resource)
        endpoint = self._endpoints.get(resource)
        if known is None or endpoint is None:
            raise AllocationRefused(f"cannot allocate unregistered device {resource}")
        free = self.free(resource)
        if len(free) < count:
            raise AllocationRefused(f"requested {count} of {resource}, available {len(free)}")
        if device_ids is not None:
            chosen = list(device_ids)
        else:
            chosen = free if len(free) == count else self._choose(endpoint, free, count)
        assignment = Assignment(owner, resource, tuple(chosen), endpoint.allocate(chosen))
        self.assignments[owner] = assignment
        return assignment

    def admit(self, pod: Pod, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Give a pod its devices as the kubelet does; `meanwhile` happens before each Allocate is called."""
        endpoint = self._endpoints.get(pod.resource)
        if endpoint is None:
            raise AllocationRefused(f"cannot allocate unregistered device {pod.resource}")

        def preferred(available: Sequence[str], required: Sequence[str], count: int) -> Sequence[str]:
            return _admitting(lambda: endpoint.preferred(available, required, count))

        def allocate(device_ids: Sequence[str]) -> object:
            meanwhile()
            return _admitting(lambda: endpoint.allocate(device_ids))

        self.device_manager.admit(pod, Plugin(partial(self.healthy, pod.resource), preferred, allocate))

    def _allocatable(self) -> bytes:
        """Return the answer of `v1.PodResourcesLister/GetAllocatableResources`: what is healthy, allocated or not."""
        answer = AllocatableResourcesResponse()
        for name in self.registry.names():
            answer.devices.add(resource_name=name, device_ids=self.healthy(name))
        encoded: bytes = answer.SerializeToString()
        return encoded

    def release(self, owner: str) -> None:
        """Forget an owner; plugins are not told, as the interface has no call for it."""
        self.assignments.pop(owner, None)

    @staticmethod
    def _choose(endpoint: Endpoint, free: list[str], count: int) -> list[str]:
        if not endpoint.options().get_preferred_allocation_available:
            return free[:count]
        return [device for device in endpoint.preferred(free, [], count) if device in free][:count]

    def _handler(self, registry: Registry) -> grpc.GenericRpcHandler[Any, Any]:
        register = grpc.unary_unary_rpc_method_handler(
            partial(self._register, registry),
            request_deserializer=api_pb2.RegisterRequest.FromString,
            response_serializer=api_pb2.Empty.SerializeToString,
        )
        return grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": register})

    def _register(
        self, registry: Registry, request: api_pb2.RegisterRequest, context: grpc.ServicerContext
    ) -> api_pb2.Empty:
        if self.mode is Mode.HANG:
            registry.wait_for(lambda: self.mode is not Mode.HANG or not self._serves(registry), _HANG_S)
        if not self._serves(registry):
            context.abort(grpc.StatusCode.UNAVAILABLE, "there is another kubelet")
        if self.mode is Mode.REFUSE or request.version != _API_VERSION:
            context.abort(grpc.StatusCode.UNKNOWN, f"requested version {request.version!r} is not supported")
        endpoint = Endpoint(self.folder, request.endpoint)
        try:
            endpoint.options()
        except grpc.RpcError as error:
            endpoint.close()
            context.abort(grpc.StatusCode.UNKNOWN, f"failed to get options: {error}")
        resource = registry.register(request.resource_name, request.endpoint)
        self._adopt(registry, resource, endpoint)
        return api_pb2.Empty()

    def _serves(self, registry: Registry) -> bool:
        """Tell whether the kubelet that a call came to still runs: one that was stopped may have calls left."""
        return self._server is not None and self.registry is registry

    def _take(self, info: PluginInfo, socket: str) -> str:
        """Take a plugin that the watcher found; return why not, or ""."""
        if self.mode is Mode.REFUSE or info.type != "DevicePlugin" or _API_VERSION not in info.supported_versions:
            return f"{info.type} {info.name}, versions {list(info.supported_versions)} is not supported"
        registry, endpoint = self.registry, Endpoint(self.plugins_folder, socket)
        try:
            endpoint.options()
        except grpc.RpcError as error:
            endpoint.close()
            return f"failed to get options: {error}"
        self._adopt(registry, registry.register(info.name, socket), endpoint)
        return ""

    def _adopt(self, registry: Registry, resource: Resource, endpoint: Endpoint) -> None:
        with self._connecting:
            previous = self._endpoints.pop(resource.name, None)
            if previous is not None:
                self._replaced.append(previous)
            self._endpoints[resource.name] = endpoint
        if self.mode is Mode.DROP:
            self._disconnect(registry, resource.name)
        if self.mode in {Mode.DEAF, Mode.DROP}:
            return
        endpoint.watch(registry, resource.name, lambda name: self._notice_end(registry, name))
        if self.mode is Mode.LOSE:
            registry.wait_for(lambda: resource.is_watched, _LOSE_S)
            endpoint.end_stream()
            registry.wait_for(lambda: not resource.is_watched, _LOSE_S)

    def _notice_end(self, registry: Registry, name: str) -> None:
        self.notices_ends.wait()
        self._disconnect(registry, name)

    def _disconnect(self, registry: Registry, name: str) -> None:
        """End the connection that a resource has now, as `runClient` does when any stream of that name has ended."""
        if registry is not self.registry:
            return  # of the kubelet before
        with self._connecting:
            current = self._endpoints.pop(name, None)
        registry.stream_ended(name)
        if current is not None:
            current.close()
