"""The client against a server that answers as a kubelet does."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from lab.podresources import ContainerDevices, allocatable, allocated
from lab.podresources.client import SOCKET
from lab.podresources.proto import api_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator

GPU = "nvidia.com/gpu"


def devices(*names: str, resource: str = GPU) -> api_pb2.ContainerDevices:
    return api_pb2.ContainerDevices(resource_name=resource, device_ids=names)


def container(name: str, *found: api_pb2.ContainerDevices) -> api_pb2.ContainerResources:
    return api_pb2.ContainerResources(name=name, devices=found)


LISTED = api_pb2.ListPodResourcesResponse(
    pod_resources=[
        api_pb2.PodResources(
            namespace="one",
            name="work",
            containers=[
                container("two", devices("GPU-a"), devices("GPU-b")),  # with a topology: an entry each
                container("mixed", devices("GPU-c", "GPU-d"), devices("NIC-1", resource="rdma/nic")),
                container("none"),
            ],
        ),
        api_pb2.PodResources(namespace="one", name="idle", containers=[container("main")]),
    ]
)
ALLOCATABLE = api_pb2.AllocatableResourcesResponse(devices=[devices("GPU-a"), devices("NIC-1", resource="rdma/nic")])


@pytest.fixture
def node_root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own can be too long for a socket
        yield from serve(Path(folder))


def serve(folder: Path) -> Iterator[Path]:
    answers: dict[str, Any] = {"List": LISTED, "GetAllocatableResources": ALLOCATABLE}
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(lambda *_, answer=answer: answer.SerializeToString())
        for name, answer in answers.items()
    }
    folder.joinpath(SOCKET).parent.mkdir(parents=True)
    server = grpc.server(ThreadPoolExecutor(max_workers=2))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers),))
    server.add_insecure_port(f"unix:{folder / SOCKET}")
    server.start()
    yield folder
    server.stop(grace=None).wait()


def test_who_has_what_is_listed_by_container(node_root: Path) -> None:
    assert allocated(node_root, GPU) == (
        ContainerDevices("one", "work", "two", GPU, frozenset({"GPU-a", "GPU-b"})),
        ContainerDevices("one", "work", "mixed", GPU, frozenset({"GPU-c", "GPU-d"})),
    )


def test_healthy_devices_are_listed_by_resource(node_root: Path) -> None:
    assert allocatable(node_root, GPU) == {"GPU-a"}


def test_a_kubelet_that_does_not_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(grpc.RpcError):
        allocated(tmp_path, GPU, timeout_s=0.2)
