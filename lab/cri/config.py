"""Builds CRI configurations as a kubelet does (pkg/kubelet/kuberuntime and kubelet_pods.go of Kubernetes 1.34).

Pure: values in, messages out. The client sends them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from lab.cri.proto import api_pb2 as cri

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_USERS = 65536  # as many ids as the kubelet gives each pod


@dataclass(frozen=True)
class Device:
    """A device node for a container; an empty `container_path` means the same path as on the host."""

    host_path: str
    container_path: str = ""
    permissions: str = "rw"


@dataclass(frozen=True)
class Mount:
    """A bind mount into a container."""

    host_path: str
    container_path: str
    read_only: bool = False


@dataclass(frozen=True)
class ContainerSpec:
    """What a pod's author and the scheduler decide about a container.

    `first_id` is that of its pod, where that has users of its own.
    """

    image: str
    command: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    devices: Sequence[Device] = ()
    mounts: Sequence[Mount] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: Sequence[str] = ()
    privileged: bool = False
    name: str = "main"
    first_id: int | None = None


class AllocatedDevice(Protocol):
    """DeviceSpec of the device plugin API."""

    host_path: str
    container_path: str
    permissions: str


class AllocatedMount(Protocol):
    """Mount of the device plugin API."""

    host_path: str
    container_path: str
    read_only: bool


class AllocatedCdiDevice(Protocol):
    """CDIDevice of the device plugin API."""

    name: str


class Allocation(Protocol):
    """ContainerAllocateResponse of the device plugin API (v1beta1)."""

    @property
    def envs(self) -> Mapping[str, str]:
        """Environment variables."""

    @property
    def annotations(self) -> Mapping[str, str]:
        """Annotations for the container, as the runtime gets them."""

    @property
    def devices(self) -> Iterable[AllocatedDevice]:
        """Device nodes."""

    @property
    def mounts(self) -> Iterable[AllocatedMount]:
        """Bind mounts."""

    @property
    def cdi_devices(self) -> Iterable[AllocatedCdiDevice]:
        """Fully qualified CDI names."""


def container_config_from_allocation(allocation: Allocation, spec: ContainerSpec) -> cri.ContainerConfig:
    """Return the container's configuration with a device plugin's response added.

    Like the kubelet, the plugin's variables come first, so that the pod's own of the same name win in the engine, and
    its mounts come before the pod's.
    """
    config = container_config(spec)
    own_env, own_mounts = list(config.envs), list(config.mounts)
    del config.envs[:], config.mounts[:]
    config.envs.extend([*_env(allocation.envs), *own_env])
    config.mounts.extend([*map(_mount, allocation.mounts), *own_mounts])
    config.devices.extend(map(_device, allocation.devices))
    config.CDI_devices.extend(cri.CDIDevice(name=device.name) for device in allocation.cdi_devices)
    config.annotations.update(allocation.annotations)
    return config


def container_config(spec: ContainerSpec) -> cri.ContainerConfig:
    """Return the configuration of a container that requests no device plugin resources."""
    options = namespaces(host_network=spec.first_id is None, first_id=spec.first_id)
    security = cri.LinuxContainerSecurityContext(privileged=spec.privileged, namespace_options=options)
    return cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name=spec.name),
        image=cri.ImageSpec(image=spec.image, user_specified_image=spec.image),
        command=spec.command,
        envs=_env(spec.env),
        devices=map(_device, spec.devices),
        mounts=map(_mount, spec.mounts),
        CDI_devices=[cri.CDIDevice(name=name) for name in spec.cdi_devices],
        labels={"io.kubernetes.container.name": spec.name},
        annotations=spec.annotations,
        log_path=f"{spec.name}.log",
        linux=cri.LinuxContainerConfig(security_context=security),
    )


def namespaces(*, host_network: bool = True, first_id: int | None = None) -> cri.NamespaceOption:
    """Return a pod's namespaces, with or without the host's network.

    With `first_id` the pod has a user namespace (`hostUsers: false`) whose root has that id on the host; it cannot be
    on the host's network.
    """
    network = cri.NODE if host_network else cri.POD
    found = cri.NamespaceOption(network=network, pid=cri.CONTAINER, ipc=cri.POD)
    if first_id is not None:
        ids = cri.IDMapping(container_id=0, host_id=first_id, length=_USERS)
        found.userns_options.CopyFrom(cri.UserNamespace(mode=cri.POD, uids=[ids], gids=[ids]))
    return found


def _env(variables: Mapping[str, str]) -> list[cri.KeyValue]:
    return [cri.KeyValue(key=key, value=value) for key, value in variables.items()]


def _device(device: Device | AllocatedDevice) -> cri.Device:
    inside = device.container_path or device.host_path
    return cri.Device(host_path=device.host_path, container_path=inside, permissions=device.permissions)


def _mount(mount: Mount | AllocatedMount) -> cri.Mount:
    return cri.Mount(host_path=mount.host_path, container_path=mount.container_path, readonly=mount.read_only)
