"""The kubelet's device manager: who has which device, and which one a container gets. No network here.

It follows `ManagerImpl` of `pkg/kubelet/cm/devicemanager` (Kubernetes 1.34 and 1.36; names in parentheses are its own)
where it matters to who may be given what: devices of an ordinary init container are used again by its pod
(`devicesToReuse`), those of ended pods are freed (`UpdateAllocatedDevices`), and the lock is not held while a plugin
is called. So allocations can be recalculated in the middle of one, which is forgotten until the next time: then two
pods may be given one device. NUMA alignment is not here.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lab.podresources.proto import api_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

INIT, SIDECAR, APP = "init", "sidecar", "app"


class AllocationRefused(Exception):
    """The pod would fail with UnexpectedAdmissionError."""


@dataclass(frozen=True)
class Container:
    """A container that asks for devices. `kind`: init, sidecar (a restartable init container) or app."""

    name: str
    count: int
    kind: str = APP


@dataclass(frozen=True)
class Pod:
    """A pod of one resource; init containers come first, as they are admitted first."""

    name: str
    containers: tuple[Container, ...]
    resource: str = "nvidia.com/gpu"
    namespace: str = "default"
    uid: str = ""

    @property
    def key(self) -> str:
        """What tells it from a pod of the same name before or after it."""
        return self.uid or f"{self.namespace}/{self.name}"


@dataclass
class Plugin:
    """What the device manager asks of the plugin of a resource."""

    healthy: Callable[[], Sequence[str]]
    preferred: Callable[[Sequence[str], Sequence[str], int], Sequence[str]]
    allocate: Callable[[Sequence[str]], object]


@dataclass
class DeviceManager:
    """Pods that the kubelet knows, and their devices (`podDevices`, `allocatedDevices`). Used from several threads.

    `sources_ready` is False after a start until the kubelet has heard of all its pods. `lists_ended_pods`: as before
    1.34, when List went over all pods instead of the active ones.
    """

    sources_ready: bool = True
    lists_ended_pods: bool = False
    pods: dict[str, Pod] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    given: dict[tuple[str, str, str], frozenset[str]] = field(default_factory=dict)  # pod, container, resource
    allocated: dict[str, set[str]] = field(default_factory=dict)
    _reuse: dict[str, set[str]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def admit(self, pod: Pod, plugin: Plugin) -> None:
        """Give a pod its devices, container by container; one that is refused has ended (`rejectPod`)."""
        with self._lock:
            self.pods[pod.key] = pod
        try:
            for container in pod.containers:
                self._allocate(pod, container, plugin)
        except AllocationRefused:
            self.end(pod)
            raise

    def end(self, pod: Pod) -> None:
        """Let a pod end; its object stays for a while."""
        with self._lock:
            self.ended.add(pod.key)

    def remove(self, pod: Pod) -> None:
        """Forget a pod whose object was deleted."""
        with self._lock:
            self.pods.pop(pod.key, None)
            self.ended.discard(pod.key)

    def restart(self) -> None:
        """Start again from the checkpoint: devices are known, pods are learned of later."""
        with self._lock:
            self.pods, self.ended, self.sources_ready = {}, set(), False
            self._recalculate()

    def _active(self) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.key not in self.ended]

    def update(self) -> None:
        """Free what ended pods had (`UpdateAllocatedDevices`)."""
        with self._lock:
            if not self.sources_ready:
                return
            active = {pod.key for pod in self._active()}
            gone = [key for key in self.given if key[0] not in active]
            for key in gone:
                del self.given[key]
            if gone:
                self._recalculate()

    def _recalculate(self) -> None:
        self.allocated = {}
        for (_, _, resource), devices in self.given.items():
            self.allocated.setdefault(resource, set()).update(devices)

    def _allocate(self, pod: Pod, container: Container, plugin: Plugin) -> None:
        self._reuse = {key: devices for key, devices in self._reuse.items() if key == pod.key}
        reuse = self._reuse.setdefault(pod.key, set())
        key = (pod.key, container.name, pod.resource)
        self.update()
        if key not in self.given and container.count:
            chosen = self._choose(pod.resource, container.count, reuse, plugin)
            try:
                plugin.allocate(chosen)
            except AllocationRefused:
                with self._lock:
                    self._recalculate()
                raise
            with self._lock:
                self.given[key] = frozenset(chosen)
        if container.kind == INIT:
            reuse |= self.given.get(key, frozenset())
        else:
            reuse -= self.given.get(key, frozenset())

    def _choose(self, resource: str, count: int, reuse: set[str], plugin: Plugin) -> list[str]:
        """Return the devices of a container (`devicesToAllocate`): the pod's own first, then what is preferred."""
        with self._lock:
            used = self.allocated.setdefault(resource, set())
            chosen = sorted(reuse)[:count]
            used.update(chosen)
            available = [device for device in plugin.healthy() if device not in used]
        if len(chosen) == count:
            return chosen
        if len(available) < count - len(chosen):
            raise AllocationRefused(f"requested {count} of {resource}, available {len(available)}")
        preferred = plugin.preferred([*available, *chosen], chosen, count)
        with self._lock:
            rest = [one for one in (*preferred, *available) if one in available]
            chosen += list(dict.fromkeys(rest))[: count - len(chosen)]
            self.allocated.setdefault(resource, set()).update(chosen)
        return chosen

    def list_response(self) -> bytes:
        """Return the answer of `v1.PodResourcesLister/List`: of init containers, the restartable ones alone."""
        with self._lock:
            pods = list(self.pods.values()) if self.lists_ended_pods else self._active()
            self.update()
            listed = [
                api_pb2.PodResources(
                    name=pod.name,
                    namespace=pod.namespace,
                    containers=[
                        self._container(pod, container) for container in pod.containers if container.kind != INIT
                    ],
                )
                for pod in pods
            ]
        answer: bytes = api_pb2.ListPodResourcesResponse(pod_resources=listed).SerializeToString()
        return answer

    def _container(self, pod: Pod, container: Container) -> api_pb2.ContainerResources:
        devices = [
            api_pb2.ContainerDevices(resource_name=resource, device_ids=[device])
            for (key, name, resource), ids in self.given.items()
            if (key, name) == (pod.key, container.name)
            for device in sorted(ids)
        ]
        return api_pb2.ContainerResources(name=container.name, devices=devices)
