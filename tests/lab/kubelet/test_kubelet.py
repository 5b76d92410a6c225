"""The stand-in behaves as the kubelet's device manager does, towards a plugin that is not ours."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from lab.kubelet import AllocationRefused, Device, Kubelet, Mode
from lab.kubelet.endpoint import status_of
from plugin.kubelet.folder import SocketAddress
from plugin.kubelet.proto.deviceplugin.v1beta1 import api_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RESOURCE = "example.com/thing"
REQUESTS: dict[str, Any] = {
    "GetDevicePluginOptions": api_pb2.Empty,
    "GetPreferredAllocation": api_pb2.PreferredAllocationRequest,
    "Allocate": api_pb2.AllocateRequest,
}


class MinimalPlugin:
    """A plugin of a few lines: offers what it is told and notes the calls it gets."""

    def __init__(self, folder: Path, *, prefers: bool) -> None:
        self.calls: list[str] = []
        self.folder = folder
        self._prefers = prefers
        self._devices = [("b", "Healthy"), ("a", "Healthy"), ("c", "Unhealthy")]
        self._done = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(4))
        methods: dict[str, Any] = {
            name: grpc.unary_unary_rpc_method_handler(
                self._answer(name), request_deserializer=request.FromString, response_serializer=self._serialize
            )
            for name, request in REQUESTS.items()
        }
        methods["ListAndWatch"] = grpc.unary_stream_rpc_method_handler(
            self._list, request_deserializer=api_pb2.Empty.FromString, response_serializer=self._serialize
        )
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods),))
        self._address = SocketAddress(folder, "thing.sock")
        self._server.add_insecure_port(self._address.target)
        self._server.start()

    @staticmethod
    def _serialize(message: Any) -> bytes:  # noqa: ANN401 - generated classes
        data: bytes = message.SerializeToString()
        return data

    def _answer(self, name: str) -> Any:  # noqa: ANN401 - one of grpc's handler functions
        def answer(request: Any, _context: grpc.ServicerContext) -> Any:  # noqa: ANN401 - generated classes
            self.calls.append(name)
            if name == "GetDevicePluginOptions":
                return api_pb2.DevicePluginOptions(get_preferred_allocation_available=self._prefers)
            if name == "GetPreferredAllocation":
                asked = request.container_requests[0]
                preferred = api_pb2.PreferredAllocationResponse()
                preferred.container_responses.add(
                    deviceIDs=sorted(asked.available_deviceIDs)[::-1][: asked.allocation_size]
                )
                return preferred
            response = api_pb2.AllocateResponse()
            response.container_responses.add(envs={"IDS": ",".join(request.container_requests[0].devices_ids)})
            return response

        return answer

    def _list(self, _request: api_pb2.Empty, _context: grpc.ServicerContext) -> Iterator[api_pb2.ListAndWatchResponse]:
        self.calls.append("ListAndWatch")
        yield api_pb2.ListAndWatchResponse(
            devices=[api_pb2.Device(ID=device_id, health=health) for device_id, health in self._devices]
        )
        self._done.wait(30)

    def register(self, version: str = "v1beta1", timeout_s: float = 10) -> None:
        address = SocketAddress(self.folder, "kubelet.sock")
        with grpc.insecure_channel(address.target) as channel:
            call = channel.unary_unary(
                "/v1beta1.Registration/Register",
                request_serializer=api_pb2.RegisterRequest.SerializeToString,
                response_deserializer=api_pb2.Empty.FromString,
            )
            request = api_pb2.RegisterRequest(version=version, endpoint="thing.sock", resource_name=RESOURCE)
            call(request, timeout=timeout_s)
        address.close()

    def stop(self) -> None:
        self._done.set()
        self._server.stop(0).wait()
        self._address.close()


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    with Kubelet(tmp_path) as stand_in:
        yield stand_in


@pytest.fixture
def plugin(kubelet: Kubelet) -> Iterator[MinimalPlugin]:
    minimal = MinimalPlugin(kubelet.folder, prefers=True)
    yield minimal
    minimal.stop()


def test_register_asks_for_the_options_first_and_watches_then(kubelet: Kubelet, plugin: MinimalPlugin) -> None:
    plugin.register()
    assert plugin.calls[0] == "GetDevicePluginOptions"
    assert kubelet.wait_for_devices(RESOURCE, 2) == ["a", "b"]
    assert kubelet.capacity(RESOURCE) == 3
    assert plugin.calls == ["GetDevicePluginOptions", "ListAndWatch"]


def test_the_preference_is_asked_only_where_there_is_a_choice(kubelet: Kubelet, plugin: MinimalPlugin) -> None:
    plugin.register()
    kubelet.wait_for_devices(RESOURCE, 2)
    assert kubelet.allocate(RESOURCE, 1, "one").device_ids == ("b",)
    assert "GetPreferredAllocation" in plugin.calls
    plugin.calls.clear()
    assert kubelet.allocate(RESOURCE, 1, "two").device_ids == ("a",)
    assert plugin.calls == ["Allocate"]


def test_a_plugin_without_a_preference_is_not_asked_for_one(kubelet: Kubelet) -> None:
    plugin = MinimalPlugin(kubelet.folder, prefers=False)
    plugin.register()
    kubelet.wait_for_devices(RESOURCE, 2)
    assert dict(kubelet.allocate(RESOURCE, 1, "one").response.envs) == {"IDS": "a"}
    assert "GetPreferredAllocation" not in plugin.calls
    plugin.stop()


def test_what_is_given_away_is_free_again_after_a_release(kubelet: Kubelet, plugin: MinimalPlugin) -> None:
    plugin.register()
    kubelet.wait_for_devices(RESOURCE, 2)
    kubelet.allocate(RESOURCE, 2, "pod")
    with pytest.raises(AllocationRefused, match="available 0"):
        kubelet.allocate(RESOURCE, 1, "other")
    kubelet.release("pod")
    assert kubelet.free(RESOURCE) == ["a", "b"]


def test_an_unregistered_resource_cannot_be_allocated(kubelet: Kubelet) -> None:
    with pytest.raises(AllocationRefused, match="unregistered"):
        kubelet.allocate("example.com/nothing", 1, "pod")


def test_a_stream_that_ends_leaves_capacity_and_no_health(kubelet: Kubelet, plugin: MinimalPlugin) -> None:
    plugin.register()
    kubelet.wait_for_devices(RESOURCE, 2)
    kubelet.end_stream(RESOURCE)
    kubelet.wait_for_devices(RESOURCE, 0)
    assert kubelet.capacity(RESOURCE) == 3
    assert plugin.calls.count("ListAndWatch") == 1


def test_a_restart_removes_every_socket_and_keeps_assignments(kubelet: Kubelet, plugin: MinimalPlugin) -> None:
    plugin.register()
    kubelet.wait_for_devices(RESOURCE, 2)
    kubelet.allocate(RESOURCE, 1, "pod")
    (kubelet.folder / "kubelet_internal_checkpoint").write_text("{}")
    kubelet.restart()
    assert sorted(path.name for path in kubelet.folder.iterdir()) == ["kubelet.sock", "kubelet_internal_checkpoint"]
    assert kubelet.capacity(RESOURCE) == 0
    assert list(kubelet.assignments) == ["pod"]


def test_a_stop_can_leave_a_stale_socket(kubelet: Kubelet, plugin: MinimalPlugin) -> None:
    kubelet.stop(leave_socket=True)
    assert (kubelet.folder / "kubelet.sock").is_socket()
    with pytest.raises(grpc.RpcError):
        plugin.register(timeout_s=1)


@pytest.mark.parametrize(
    ("mode", "version", "status"),
    [
        pytest.param(Mode.SERVE, "v1alpha1", grpc.StatusCode.UNKNOWN, id="another version"),
        pytest.param(Mode.REFUSE, "v1beta1", grpc.StatusCode.UNKNOWN, id="told to refuse"),
        pytest.param(Mode.HANG, "v1beta1", grpc.StatusCode.DEADLINE_EXCEEDED, id="told to hang"),
    ],
)
def test_registrations_that_fail(
    kubelet: Kubelet, plugin: MinimalPlugin, mode: Mode, version: str, status: grpc.StatusCode
) -> None:
    kubelet.set_mode(mode)
    with pytest.raises(grpc.RpcError) as raised:
        plugin.register(version, timeout_s=0.5)
    assert status_of(raised.value)[0] is status
    assert kubelet.registry.registrations == 0


def test_a_deaf_kubelet_registers_and_never_watches(kubelet: Kubelet, plugin: MinimalPlugin) -> None:
    kubelet.set_mode(Mode.DEAF)
    plugin.register()
    assert plugin.calls == ["GetDevicePluginOptions"]
    assert kubelet.healthy(RESOURCE) == []


def test_devices_are_values() -> None:
    assert Device("a", is_healthy=True) == Device("a", is_healthy=True, numa_nodes=())
