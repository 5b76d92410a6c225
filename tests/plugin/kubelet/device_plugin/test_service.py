"""What the kubelet's calls are answered, over a real socket."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import grpc
import pytest

from lab.kubelet import Kubelet
from lab.kubelet.endpoint import Endpoint, status_of
from lab.kubelet.proto.deviceplugin.v1beta1 import api_pb2
from plugin.driver.snapshot import LostGpu, Snapshot
from plugin.system.sockets import SocketAddress
from tests.plugin.daemon_process import RESOURCE, DaemonProcess
from tests.plugin.fakes import VERSION, gpu, write_driver

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.functional  # whole daemons, one process a test


SOCKET = "grapnel-nvidia.com_gpu.sock"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Serve three GPUs, of which the third is lost."""
    node = tmp_path_factory.mktemp("node")
    with DaemonProcess(node, 3) as daemon, Kubelet(daemon.kubelet_root) as kubelet:
        kubelet.wait_for_devices(RESOURCE, 3)
        write_driver(daemon.driver, Snapshot(VERSION, (gpu(0), gpu(1)), (LostGpu(2, gpu(2).uuid, "gpu is lost"),)))
        kubelet.wait_for_devices(RESOURCE, 2)
        yield kubelet.folder


@pytest.fixture
def endpoint(folder: Path) -> Iterator[Endpoint]:
    connection = Endpoint(folder, SOCKET)
    yield connection
    connection.close()


def refusal(call: object, *arguments: object) -> tuple[grpc.StatusCode, str]:
    assert callable(call)
    with pytest.raises(grpc.RpcError) as raised:
        call(*arguments)
    return status_of(raised.value)


@pytest.mark.parametrize(
    ("ids", "status", "text"),
    [
        pytest.param(["GPU-x"], grpc.StatusCode.INVALID_ARGUMENT, "'GPU-x' is not one", id="unknown"),
        pytest.param([gpu(0).uuid] * 2, grpc.StatusCode.INVALID_ARGUMENT, "twice", id="the same twice"),
        pytest.param([], grpc.StatusCode.INVALID_ARGUMENT, "no device", id="none"),
        pytest.param([gpu(2).uuid], grpc.StatusCode.FAILED_PRECONDITION, "gpu is lost", id="unhealthy"),
        pytest.param(["x" * 65536], grpc.StatusCode.INVALID_ARGUMENT, "'xxx", id="64 KiB of id"),
        pytest.param(["é\n" * 30000], grpc.StatusCode.INVALID_ARGUMENT, r"\xe9\n", id="64 KiB of odd characters"),
    ],
)
def test_allocations_that_cannot_be_answered(
    endpoint: Endpoint, ids: list[str], status: grpc.StatusCode, text: str
) -> None:
    code, details = refusal(endpoint.allocate, ids)
    assert code is status
    assert text in details
    assert len(details) < 1000
    assert endpoint.allocate([gpu(1).uuid]).annotations["grapnel.dev/allocation"] == gpu(1).uuid


def test_a_request_without_containers_is_refused(endpoint: Endpoint) -> None:
    code, _ = refusal(endpoint.call, "Allocate", api_pb2.AllocateRequest(), api_pb2.AllocateResponse)
    assert code is grpc.StatusCode.INVALID_ARGUMENT


def test_a_request_with_one_bad_container_gives_nothing_to_the_others(folder: Path, endpoint: Endpoint) -> None:
    log = folder.parents[1] / "log"
    before = log.read_text().count("msg=allocated")
    request = api_pb2.AllocateRequest()
    for device_id in (gpu(0).uuid, "GPU-x"):
        request.container_requests.add(devices_ids=[device_id])
    code, _ = refusal(endpoint.call, "Allocate", request, api_pb2.AllocateResponse)
    endpoint.options()  # what the daemon does after an answer is done by now
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert log.read_text().count("msg=allocated") == before


def test_bytes_that_are_no_message_are_survived(folder: Path, endpoint: Endpoint) -> None:
    address = SocketAddress(folder, SOCKET)
    with grpc.insecure_channel(address.target) as channel:
        call = channel.unary_unary(
            "/v1beta1.DevicePlugin/Allocate", request_serializer=bytes, response_deserializer=bytes
        )
        code, _ = refusal(call, b"\xff" + os.urandom(64))
    address.close()
    assert code in {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN}
    assert len(endpoint.first_list()) == 3


def test_options_offer_the_preference_only(endpoint: Endpoint) -> None:
    options = endpoint.options()
    assert (options.pre_start_required, options.get_preferred_allocation_available) == (False, True)


def test_the_preference_is_answered_and_refused(endpoint: Endpoint) -> None:
    assert endpoint.preferred([gpu(1).uuid, gpu(0).uuid], [], 1) == [gpu(0).uuid]
    code, _ = refusal(endpoint.preferred, [gpu(0).uuid], [], 2)
    assert code is grpc.StatusCode.INVALID_ARGUMENT


def test_pre_start_is_answered_for_kubelets_that_ask(endpoint: Endpoint) -> None:
    request = api_pb2.PreStartContainerRequest(devices_ids=[gpu(0).uuid])
    answer = endpoint.call("PreStartContainer", request, api_pb2.PreStartContainerResponse)
    assert answer == api_pb2.PreStartContainerResponse()


@pytest.mark.parametrize(
    "method", [method.name for method in api_pb2.DESCRIPTOR.services_by_name["DevicePlugin"].methods]
)
def test_every_call_of_the_interface_is_served(
    endpoint: Endpoint, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if method == "ListAndWatch":  # its answer has no end
        monkeypatch.setattr("lab.kubelet.endpoint.CALL_TIMEOUT_S", 1.0)
    try:
        endpoint.call(method, api_pb2.Empty(), api_pb2.Empty)
        status = grpc.StatusCode.OK
    except grpc.RpcError as error:
        status, _ = status_of(error)
    assert status is not grpc.StatusCode.UNIMPLEMENTED


def test_a_call_that_the_interface_does_not_have_is_not_served(endpoint: Endpoint) -> None:
    code, _ = refusal(endpoint.call, "Deallocate", api_pb2.Empty(), api_pb2.Empty)
    assert code is grpc.StatusCode.UNIMPLEMENTED
