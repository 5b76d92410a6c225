"""Who has which device: what is read of the kubelet's answer, against what protobuf makes of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.podresources.proto import api_pb2
from plugin.base.errors import KubeletError
from plugin.kubelet.cdi_names import OTHER_KIND, OTHERS, MemoryPart, memory_name, mps_name, qualified
from plugin.kubelet.pod_resources.api import ListPodResourcesResponse
from plugin.kubelet.pod_resources.attribution import CLAIM, DeviceAssignment, PodContainer, holders_by_uuid
from plugin.kubelet.pod_resources.client import assignments_of, list_assignments
from plugin.kubelet.pod_resources.holdings import Held
from plugin.kubelet.rpc.codec import DecodeError, decode
from tests.plugin.kubelet.pod_resources.served import one_container, serving

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
DEVICES = st.builds(
    api_pb2.ContainerDevices,
    resource_name=TEXTS,
    device_ids=st.lists(TEXTS, max_size=3),
    topology=st.one_of(st.none(), st.just(api_pb2.TopologyInfo(nodes=[api_pb2.NUMANode(ID=-1)]))),
)
CONTAINERS = st.builds(
    api_pb2.ContainerResources,
    name=TEXTS,
    devices=st.lists(DEVICES, max_size=3),
    cpu_ids=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
    memory=st.lists(st.builds(api_pb2.ContainerMemory, memory_type=TEXTS, size=st.integers(0, 2**64 - 1)), max_size=2),
)
PODS = st.builds(api_pb2.PodResources, name=TEXTS, namespace=TEXTS, containers=st.lists(CONTAINERS, max_size=3))
ANSWERS = st.builds(api_pb2.ListPodResourcesResponse, pod_resources=st.lists(PODS, max_size=3))


def parse(content: bytes) -> tuple[DeviceAssignment, ...]:
    return assignments_of(decode(ListPodResourcesResponse, content))


@pytest.mark.slow
@given(ANSWERS)
@settings(deadline=None)  # the first answer may wait for a machine that has other work
def test_an_answer_says_what_protobuf_says(answer: api_pb2.ListPodResourcesResponse) -> None:
    assert parse(answer.SerializeToString()) == tuple(
        DeviceAssignment(
            PodContainer(pod.namespace, pod.name, container.name), devices.resource_name, tuple(devices.device_ids)
        )
        for pod in answer.pod_resources
        for container in pod.containers
        for devices in container.devices
    )


def test_devices_of_claims_are_told_by_their_uuids_and_those_of_other_drivers_are_not() -> None:
    def claimed(*names: str) -> api_pb2.DynamicResource:
        devices = [api_pb2.CDIDevice(name=name) for name in names]
        resource = api_pb2.ClaimResource(driver_name="gpu.nvidia.com", pool_name="n1", cdi_devices=devices)
        return api_pb2.DynamicResource(claim_name="gpu-x7k2p", claim_namespace="ml", claim_resources=[resource])

    parts = [memory_name(MemoryPart("GPU-3", 4096, number)) for number in (0, 0, 1)]  # one of them told twice
    container = api_pb2.ContainerResources(
        name="main",
        dynamic_resources=[
            claimed(qualified("GPU-1"), qualified("MIG-GPU-2/1/0")),
            claimed(*map(qualified, ("GPU-3", mps_name("GPU-3"), *parts, "memory-x-GPU-3", "memory-1.x-GPU-3"))),
            claimed("k8s.gpu.nvidia.com/claim=1-gpu-0", "dra.net/nic=0"),
        ],
    )
    pod = api_pb2.PodResources(name="train", namespace="ml", containers=[container])
    answer = api_pb2.ListPodResourcesResponse(pod_resources=[pod])
    who = PodContainer("ml", "train", "main")
    found = parse(answer.SerializeToString())
    assert found == (
        DeviceAssignment(who, f"{CLAIM}gpu-x7k2p", ("GPU-1", "MIG-GPU-2/1/0")),
        DeviceAssignment(who, f"{CLAIM}gpu-x7k2p", ("GPU-3",), (("GPU-3", 4096), ("GPU-3", 4096))),
    )
    assert holders_by_uuid(found, ()) == {"GPU-1": (who,), "MIG-GPU-2/1/0": (who,), "GPU-3": (who,)}
    assert not Held(found)  # who keeps others from a device by a claim, the daemon itself knows


def test_other_devices_of_claims_are_told_by_their_ids_and_apart_from_gpus() -> None:
    def given(driver: str, device: str, *names: str) -> api_pb2.ClaimResource:
        devices = [api_pb2.CDIDevice(name=name) for name in names]
        return api_pb2.ClaimResource(driver_name=driver, device_name=device, cdi_devices=devices)

    resources = [
        given("gpu.nvidia.com", "gpu-1", qualified("GPU-1")),
        given(OTHERS, "pci-0000-41-00-1", f"{OTHER_KIND}=pci-0000-41-00-1"),
        given(OTHERS, "licence"),
        given("dra.net", "pci-0000-42-00-1", "dra.net/nic=0"),
    ]
    claim = api_pb2.DynamicResource(claim_name="both", claim_namespace="ml", claim_resources=resources)
    container = api_pb2.ContainerResources(name="main", dynamic_resources=[claim])
    pod = api_pb2.PodResources(name="train", namespace="ml", containers=[container])
    answer = api_pb2.ListPodResourcesResponse(pod_resources=[pod])
    who = PodContainer("ml", "train", "main")
    assert parse(answer.SerializeToString()) == (
        DeviceAssignment(who, f"{CLAIM}both", ("GPU-1",)),
        DeviceAssignment(who, f"{CLAIM}both", ("0000:41:00.1", "licence")),
    )


@given(st.binary(max_size=100))
def test_bytes_that_are_no_message_are_an_error_of_the_codec(content: bytes) -> None:
    try:
        parse(content)
    except DecodeError:
        return


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\x0a", id="no length"),
        pytest.param(b"\x0a\x05ab", id="shorter than it says"),
        pytest.param(b"\x0b", id="a group"),
        pytest.param(b"\xff" * 11, id="a number without end"),
        pytest.param(b"\x09\x00", id="half a number of eight bytes"),
        pytest.param(b"\x0a\x06\x0a\x01\xff\x1a\x01\x12", id="a container cut off"),
        pytest.param(b"\x0a\x09\x0a\x01\xff\x1a\x04\x12\x02\x0a\x00", id="a name that is no text"),
    ],
)
def test_messages_that_are_none(content: bytes) -> None:
    with pytest.raises(DecodeError, match=r"."):
        parse(content)


def ask(root: Path) -> tuple[DeviceAssignment, ...]:
    return asyncio.run(list_assignments(root, 10))


def test_the_kubelet_is_asked_over_its_socket(tmp_path: Path) -> None:
    with serving(tmp_path, one_container("train-0", "nvidia.com/gpu", "GPU-0")):
        assert ask(tmp_path) == (
            DeviceAssignment(PodContainer("default", "train-0", "main"), "nvidia.com/gpu", ("GPU-0",)),
        )


def test_a_malformed_answer_is_an_error_of_the_kubelet(tmp_path: Path) -> None:
    with (
        serving(tmp_path, b"\xff"),
        pytest.raises(KubeletError, match="INTERNAL: the answer is no ListPodResourcesResponse"),
    ):
        ask(tmp_path)


def test_a_refusal_is_named(tmp_path: Path) -> None:
    with serving(tmp_path, b"", grpc.StatusCode.RESOURCE_EXHAUSTED), pytest.raises(KubeletError) as raised:
        ask(tmp_path)
    assert raised.value.message == (
        f"{tmp_path}/pod-resources/kubelet.sock does not say who has which device: RESOURCE_EXHAUSTED: not now"
    )


def test_no_kubelet_is_an_error_of_the_kubelet(tmp_path: Path) -> None:
    with pytest.raises(KubeletError, match=r"kubelet\.sock does not say who has which device: UNAVAILABLE"):
        ask(tmp_path)
