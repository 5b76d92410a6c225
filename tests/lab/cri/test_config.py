"""The translation of a device plugin's answer into a container's configuration."""

from __future__ import annotations

from dataclasses import dataclass, field

from lab.cri import ContainerSpec, Device, Mount, container_config_from_allocation
from lab.cri.config import container_config, namespaces
from lab.cri.proto import api_pb2 as cri


@dataclass
class AllocatedDevice:
    host_path: str
    container_path: str
    permissions: str


@dataclass
class AllocatedMount:
    host_path: str
    container_path: str
    read_only: bool


@dataclass
class AllocatedCdiDevice:
    name: str


@dataclass
class Allocation:
    """What the device plugin API calls ContainerAllocateResponse."""

    envs: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    devices: list[AllocatedDevice] = field(default_factory=list)
    mounts: list[AllocatedMount] = field(default_factory=list)
    cdi_devices: list[AllocatedCdiDevice] = field(default_factory=list)


SPEC = ContainerSpec(image="docker.io/local/gpu-shell:1", command=["true"])


def test_devices_keep_their_paths_and_permissions() -> None:
    allocation = Allocation(devices=[AllocatedDevice("/host/nvidia0", "/dev/nvidia0", "rw")])
    (device,) = container_config_from_allocation(allocation, SPEC).devices
    assert (device.host_path, device.container_path, device.permissions) == ("/host/nvidia0", "/dev/nvidia0", "rw")


def test_the_pod_s_own_variable_comes_after_the_plugin_s() -> None:
    spec = ContainerSpec(image="x", env={"NVIDIA_VISIBLE_DEVICES": "all"})
    config = container_config_from_allocation(Allocation(envs={"NVIDIA_VISIBLE_DEVICES": "GPU-1"}), spec)
    assert [one.value for one in config.envs] == ["GPU-1", "all"]


def test_the_plugin_s_mounts_come_before_the_pod_s() -> None:
    spec = ContainerSpec(image="x", mounts=[Mount("/b", "/b")])
    config = container_config_from_allocation(Allocation(mounts=[AllocatedMount("/a", "/a", read_only=True)]), spec)
    assert [(one.host_path, one.readonly) for one in config.mounts] == [("/a", True), ("/b", False)]


def test_annotations_and_cdi_names_are_added() -> None:
    allocation = Allocation(
        annotations={"grapnel.dev/allocation": "GPU-1"}, cdi_devices=[AllocatedCdiDevice("vendor/class=1")]
    )
    spec = ContainerSpec(image="x", annotations={"own": "1"}, cdi_devices=["vendor/class=0"])
    config = container_config_from_allocation(allocation, spec)
    assert dict(config.annotations) == {"own": "1", "grapnel.dev/allocation": "GPU-1"}
    assert [device.name for device in config.CDI_devices] == ["vendor/class=0", "vendor/class=1"]


def test_a_container_without_an_allocation_gets_nothing_of_it() -> None:
    config = container_config(SPEC)
    assert not config.devices
    assert not config.annotations
    assert not config.linux.security_context.privileged


def test_a_device_without_a_path_inside_keeps_that_of_the_host() -> None:
    (device,) = container_config(ContainerSpec(image="x", devices=[Device("/dev/null")])).devices
    assert device.container_path == "/dev/null"


def test_only_the_network_is_ever_shared_with_the_host() -> None:
    assert namespaces(host_network=True).network == cri.NODE
    assert namespaces(host_network=False).network == cri.POD
    assert namespaces(host_network=True).pid == cri.CONTAINER


def test_a_pod_with_users_of_its_own_has_the_ids_that_a_kubelet_gives_it() -> None:
    found = namespaces(host_network=False, first_id=2**31)
    (ids,) = found.userns_options.uids
    assert (found.userns_options.mode, ids.container_id, ids.host_id, ids.length) == (cri.POD, 0, 2**31, 65536)
    assert found.userns_options.uids == found.userns_options.gids
    container = container_config(ContainerSpec(image="x", first_id=2**31))
    assert container.linux.security_context.namespace_options == found
