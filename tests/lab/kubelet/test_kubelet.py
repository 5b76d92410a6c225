"""The fake kubelet behaves like the real device manager, towards a plugin that is not ours."""

from __future__ import annotations

import queue
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from lab.kubelet import AllocationRefused, Device, Kubelet, Mode
from lab.kubelet.endpoint import status_of
from lab.kubelet.proto.deviceplugin.v1beta1 import api_pb2
from lab.kubelet.proto.pluginregistration.v1 import api_pb2 as watcher_pb2
from lab.kubelet.watcher import PluginWatcher
from plugin.system.sockets import SocketAddress
from tests.waiting import wait_until

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
    """A minimal plugin: offers the given devices and records the calls it gets."""

    def __init__(self, folder: Path, *, prefers: bool, version: str = "v1beta1") -> None:
        self.calls: list[str] = []
        self.folder = folder
        self.verdicts: queue.SimpleQueue[tuple[bool, str]] = queue.SimpleQueue()
        self._version = version
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
        self._server.add_generic_rpc_handlers((self._for_the_watcher(),))
        self._address = SocketAddress(folder, "thing.sock")
        self._server.add_insecure_port(self._address.target)
        self._server.start()

    def _for_the_watcher(self) -> grpc.GenericRpcHandler[Any, Any]:
        def get_info(_request: Any, _context: grpc.ServicerContext) -> Any:
            self.calls.append("GetInfo")
            return watcher_pb2.PluginInfo(type="DevicePlugin", name=RESOURCE, supported_versions=[self._version])

        def notify(request: Any, _context: grpc.ServicerContext) -> Any:
            self.verdicts.put((request.plugin_registered, request.error))
            return watcher_pb2.RegistrationStatusResponse()

        methods: dict[str, Any] = {
            "GetInfo": grpc.unary_unary_rpc_method_handler(
                get_info,
                request_deserializer=watcher_pb2.InfoRequest.FromString,
                response_serializer=self._serialize,
            ),
            "NotifyRegistrationStatus": grpc.unary_unary_rpc_method_handler(
                notify,
                request_deserializer=watcher_pb2.RegistrationStatus.FromString,
                response_serializer=self._serialize,
            ),
        }
        return grpc.method_handlers_generic_handler("pluginregistration.Registration", methods)

    @staticmethod
    def _serialize(message: Any) -> bytes:
        data: bytes = message.SerializeToString()
        return data

    def _answer(self, name: str) -> Any:
        def answer(request: Any, _context: grpc.ServicerContext) -> Any:
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


@pytest.mark.slow
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


def test_a_kubelet_that_loses_streams_loses_them_before_it_answers(kubelet: Kubelet, plugin: MinimalPlugin) -> None:
    kubelet.set_mode(Mode.LOSE)
    plugin.register()
    known = kubelet.registry.get(RESOURCE)
    assert known is not None
    assert (known.lists, known.is_watched) == (1, False)


def test_a_plugin_in_the_watched_folder_is_found_asked_and_told(tmp_path: Path) -> None:
    (tmp_path / "plugins_registry").mkdir()
    plugin = MinimalPlugin(tmp_path / "plugins_registry", prefers=True)
    with Kubelet(tmp_path, watches_plugins=True) as kubelet:
        assert kubelet.wait_for_devices(RESOURCE, 2) == ["a", "b"]
        assert plugin.verdicts.get(timeout=10) == (True, "")
        assert plugin.calls[:2] == ["GetInfo", "GetDevicePluginOptions"]
        assert kubelet.allocate(RESOURCE, 2, "pod").device_ids == ("a", "b")
        assert plugin.calls.count("GetInfo") == 1
        plugin.stop()


def test_a_plugin_of_another_version_is_told_so(tmp_path: Path) -> None:
    with Kubelet(tmp_path, watches_plugins=True) as kubelet:
        plugin = MinimalPlugin(kubelet.plugins_folder, prefers=True, version="v2")
        is_registered, error = plugin.verdicts.get(timeout=10)
        assert not is_registered
        assert "['v2'] is not supported" in error
        assert kubelet.registry.registrations == 0
        plugin.stop()


def test_a_kubelet_that_does_not_watch_leaves_the_folder_alone(kubelet: Kubelet) -> None:
    assert not kubelet.plugins_folder.exists()


def test_devices_are_values() -> None:
    assert Device("a", is_healthy=True) == Device("a", is_healthy=True, numa_nodes=())


def test_the_end_of_an_older_stream_takes_the_connection_of_now_with_it(
    kubelet: Kubelet, plugin: MinimalPlugin
) -> None:
    """As `runClient` does: the reason to keep registrations apart."""
    plugin.register()
    kubelet.wait_for_devices(RESOURCE, 2)
    older = kubelet.endpoint(RESOURCE)
    plugin.register()
    wait_until(lambda: plugin.calls.count("ListAndWatch") == 2)
    assert kubelet.healthy(RESOURCE) == ["a", "b"]
    older.end_stream()
    kubelet.wait_for_devices(RESOURCE, 0)
    with pytest.raises(AllocationRefused, match="unregistered"):
        kubelet.allocate(RESOURCE, 1, "pod")


def test_after_the_grace_period_there_is_no_capacity_either(kubelet: Kubelet, plugin: MinimalPlugin) -> None:
    plugin.register()
    kubelet.wait_for_devices(RESOURCE, 2)
    kubelet.end_stream(RESOURCE)
    kubelet.wait_for_devices(RESOURCE, 0)
    assert kubelet.capacity(RESOURCE) == 3
    kubelet.registry.grace_s = 0
    assert kubelet.capacity(RESOURCE) == 0


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Kubelet]:
    with Kubelet(tmp_path, watches_plugins=True) as stand_in:
        yield stand_in


def test_a_plugin_whose_socket_goes_is_disconnected_by_its_resource(watching: Kubelet) -> None:
    plugin = MinimalPlugin(watching.plugins_folder, prefers=True)
    watching.wait_for_devices(RESOURCE, 2)
    (watching.plugins_folder / "thing.sock").unlink()
    watching.wait_for_devices(RESOURCE, 0)
    plugin.stop()


@pytest.mark.slow
def test_a_plugin_in_a_folder_that_was_recreated_is_found_after_a_restart(watching: Kubelet) -> None:
    shutil.rmtree(watching.plugins_folder)
    time.sleep(0.3)  # several rounds: the folder is missed
    watching.plugins_folder.mkdir()
    plugin = MinimalPlugin(watching.plugins_folder, prefers=True)
    time.sleep(0.3)
    assert plugin.calls == []
    watching.restart()
    assert watching.wait_for_devices(RESOURCE, 2) == ["a", "b"]
    plugin.stop()


def test_a_socket_in_the_place_of_another_is_dropped_before_it_is_taken(tmp_path: Path) -> None:
    happened: list[str] = []

    def take(info: watcher_pb2.PluginInfo, socket: str) -> str:
        happened.append(f"{info.name} taken from {socket}")
        return ""

    plugin = MinimalPlugin(tmp_path, prefers=True)
    watcher = PluginWatcher(tmp_path, take, lambda resource: happened.append(f"{resource} dropped"))
    wait_until(lambda: len(happened) == 1)
    plugin.stop()
    plugin = MinimalPlugin(tmp_path, prefers=True)
    wait_until(lambda: len(happened) == 3)
    taken = f"{RESOURCE} taken from thing.sock"
    assert happened == [taken, f"{RESOURCE} dropped", taken]
    watcher.stop()
    plugin.stop()
