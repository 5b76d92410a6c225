"""The whole daemon as a DRA driver: a real API server on one side, calls as a kubelet makes them on the other."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from lab.kubelet import Kubelet
from lab.kubelet.device_manager import Container
from lab.kubelet.proto.dra.v1 import api_pb2
from lab.kubelet.proto.dra_health.v1alpha1 import api_pb2 as health_pb2
from lab.kubelet.proto.pluginregistration.v1 import api_pb2 as registration_pb2
from plugin.driver.snapshot import LostGpu, Snapshot
from plugin.system.sockets import SocketAddress
from tests.plugin.daemon_process import RESOURCE, DaemonProcess
from tests.plugin.fakes import VERSION, gpu, gpus, write_driver
from tests.plugin.kubelet_pods import pod
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.cluster import ControlPlane

pytestmark = pytest.mark.functional  # a daemon of its own for each test, and an API server

DRIVER = "gpu.nvidia.com"
SERVICE = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))
DEVICES = [f"gpu-{gpu(index).uuid.removeprefix('GPU-')}" for index in range(4)]


class Claims:
    """What the API has, and what the kubelet asks of the daemon on one node."""

    def __init__(self, control_plane: ControlPlane, node: str, folder: Path, kubelet: Kubelet) -> None:
        self.control_plane = control_plane
        self.node = node
        self.kubelet = kubelet
        self.daemon = DaemonProcess(folder, 2)
        self.daemon.kubelet_root = kubelet.folder.parent
        self.registry = self.daemon.kubelet_root / "plugins_registry"
        self.registry.mkdir(exist_ok=True)
        self.kubeconfig = folder / "kubelet.conf"
        self.kubeconfig.write_text(control_plane.render_kubeconfig(control_plane.certificates.prepare_node(node)))
        self.declare("dra")

    def declare(self, interface: str) -> None:
        self.daemon.configure(
            interface=interface,
            kubernetesApi=str(self.kubeconfig),
            nodeName=self.node,
            cdiFolder=str(self.daemon.node / "cdi"),
        )

    def change_to(self, interface: str) -> None:
        self.declare(interface)
        self.daemon.signal(signal.SIGHUP)

    def ask_offered(self) -> tuple[bool, dict[str, Any]]:
        """Ask the daemon's command whether GPUs are offered as its file says."""
        words = ["offered", "--json", "--timeout", "10", "--config", str(self.daemon.node / "node.json")]
        done = subprocess.run(
            [sys.executable, "-P", "-m", "plugin.launcher", *words], stdout=subprocess.PIPE, check=False
        )
        return done.returncode == 0, json.loads(done.stdout)

    # The API's side

    def slices(self) -> list[dict[str, Any]]:
        command = ["get", "resourceslices", "-o", "json", "--field-selector", f"spec.nodeName={self.node}"]
        found: list[dict[str, Any]] = json.loads(self.control_plane.kubectl(command))["items"]
        return found

    def offered(self) -> dict[str, dict[str, Any]]:
        return {row["name"]: row for each in self.slices() for row in each["spec"].get("devices", [])}

    def wait_for(self, *devices: str) -> None:
        wait_until(
            lambda: set(self.offered()) == set(devices), lambda: f"{sorted(self.offered())}\n{self.daemon.log()}"
        )

    def create(self, name: str, *devices: str) -> str:
        """Make a pod of this node with a claim that the scheduler gave these devices; returns the claim's UID."""
        request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER, "count": len(devices)}}
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [request]}},
        }
        made = json.loads(self.control_plane.kubectl(["create", "-f", "-", "-o", "json"], input_text=json.dumps(claim)))
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "nodeName": self.node,
                "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
                "containers": [{"name": "c", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
            },
        }
        self.control_plane.kubectl(["create", "-f", "-"], input_text=json.dumps(pod))
        results = [{"request": "gpu", "driver": DRIVER, "pool": self.node, "device": each} for each in devices]
        status = {"status": {"allocation": {"devices": {"results": results}}}}
        command = ["patch", "resourceclaim", name, "--subresource=status", "--type=merge", "-p", json.dumps(status)]
        self.control_plane.kubectl(command)
        return str(made["metadata"]["uid"])

    # The kubelet's side

    def connect(self) -> None:
        """Connect to the daemon's socket, however long its path is, and stay connected, as a kubelet does."""
        wait_until(lambda: len(list(self.registry.glob("*.sock"))) == 1, self.daemon.log)
        (socket,) = self.registry.glob("*.sock")
        with closing(SocketAddress(self.registry, socket.name)) as address:
            self._channel = grpc.insecure_channel(address.target, options=OPTIONS)
            grpc.channel_ready_future(self._channel).result(timeout=20)

    def hang_up(self) -> None:
        """Leave, as a kubelet that stops does."""
        self._channel.close()

    def _call(self, method: str, request: Any, answer: Any) -> Any:
        call = self._channel.unary_unary(
            method, request_serializer=type(request).SerializeToString, response_deserializer=answer.FromString
        )
        return call(request, timeout=20)

    def health(self) -> dict[str, int]:
        """Return what the daemon says first of each device."""
        watch = self._channel.unary_stream(
            "/v1alpha1.DRAResourceHealth/NodeWatchResources",
            request_serializer=health_pb2.NodeWatchResourcesRequest.SerializeToString,
            response_deserializer=health_pb2.NodeWatchResourcesResponse.FromString,
        )
        told = next(iter(watch(health_pb2.NodeWatchResourcesRequest(), timeout=20)))
        return {each.device.device_name: each.health for each in told.devices}

    def restart(self) -> None:
        """Kill the daemon, and start it; the socket that it left behind goes."""
        (before,) = self.registry.glob("*.sock")
        self.daemon.kill()
        self.daemon.start()
        wait_until(lambda: not before.exists(), self.daemon.log)

    def register(self) -> list[str]:
        """Take the driver, as a kubelet that has found its socket does; returns the versions that it speaks."""
        self.connect()
        service = "/pluginregistration.Registration"
        info = self._call(f"{service}/GetInfo", registration_pb2.InfoRequest(), registration_pb2.PluginInfo)
        assert (info.type, info.name) == ("DRAPlugin", DRIVER)
        status = registration_pb2.RegistrationStatus(plugin_registered=True)
        answer = registration_pb2.RegistrationStatusResponse
        self._call(f"{service}/NotifyRegistrationStatus", status, answer)
        return list(info.supported_versions)

    def prepare(self, name: str, uid: str) -> api_pb2.NodePrepareResourceResponse:
        asked = api_pb2.NodePrepareResourcesRequest(claims=[api_pb2.Claim(namespace="default", name=name, uid=uid)])
        answer = self._call(f"/{SERVICE}/NodePrepareResources", asked, api_pb2.NodePrepareResourcesResponse)
        found: api_pb2.NodePrepareResourceResponse = answer.claims[uid]
        return found

    def unprepare(self, name: str, uid: str) -> str:
        asked = api_pb2.NodeUnprepareResourcesRequest(claims=[api_pb2.Claim(namespace="default", name=name, uid=uid)])
        answer = self._call(f"/{SERVICE}/NodeUnprepareResources", asked, api_pb2.NodeUnprepareResourcesResponse)
        return str(answer.claims[uid].error)

    def cdi_file(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.daemon.node / "cdi/grapnel-claims.json").read_text())
        return found


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    with Kubelet(tmp_path / "kubelet-root", has_pod_resources=True) as stand_in:
        yield stand_in


@pytest.fixture
def claims(control_plane: ControlPlane, node: str, tmp_path: Path, kubelet: Kubelet) -> Iterator[Claims]:
    made = Claims(control_plane, node, tmp_path, kubelet)
    with made.daemon:
        yield made
        made.hang_up()
    control_plane.kubectl(["delete", "pods,resourceclaims", "--all", "--force", "--wait=false"])


def test_gpus_are_in_slices_of_the_node_and_not_in_the_device_plugins_list(claims: Claims) -> None:
    assert claims.register() == [
        "v1.DRAPlugin",
        "v1beta1.DRAPlugin",
        "v1.DRAResourceHealth",
        "v1alpha1.DRAResourceHealth",
    ]
    claims.wait_for(*DEVICES[:2])
    (only,) = claims.slices()
    assert only["spec"]["pool"] == {"name": claims.node, "generation": 1, "resourceSliceCount": 1}
    assert only["metadata"]["ownerReferences"][0]["name"] == claims.node
    assert claims.offered()[DEVICES[0]]["attributes"]["driverVersion"] == {"version": "550.163.1"}
    assert not list((claims.daemon.kubelet_root / "device-plugins").glob("grapnel-*"))


def test_a_claim_is_prepared_and_given_back(claims: Claims) -> None:
    claims.register()
    claims.wait_for(*DEVICES[:2])
    uid = claims.create("one", DEVICES[1])
    found = claims.prepare("one", uid)
    assert found.error == ""
    (device,) = found.devices
    (name,) = device.cdi_device_ids
    kind, _, of_file = name.partition("=")
    file = claims.cdi_file()
    assert file["kind"] == kind
    nodes = {each["name"]: each["containerEdits"]["deviceNodes"] for each in file["devices"]}
    assert [each["path"] for each in nodes[of_file]] == ["/dev/nvidia1"]
    assert claims.unprepare("one", uid) == ""
    assert not list((claims.daemon.node / "state/claims").glob("*.json"))


def test_a_daemon_that_was_killed_writes_no_slice_anew_and_knows_its_claims(claims: Claims) -> None:
    claims.register()
    claims.wait_for(*DEVICES[:2])
    uid = claims.create("one", DEVICES[0])
    assert claims.prepare("one", uid).error == ""
    before = claims.slices()
    claims.restart()
    claims.register()
    second = claims.create("two", DEVICES[0])
    assert "default/one" in claims.prepare("two", second).error
    assert [each["metadata"]["resourceVersion"] for each in claims.slices()] == [
        each["metadata"]["resourceVersion"] for each in before
    ]


def test_slices_that_are_deleted_are_there_again(claims: Claims) -> None:
    claims.register()
    claims.wait_for(*DEVICES[:2])
    claims.control_plane.kubectl(["delete", "resourceslices", "--all"])
    claims.wait_for(*DEVICES[:2])


def test_it_is_said_whether_gpus_are_offered_by_the_interface_that_is_declared(claims: Claims) -> None:
    is_offered, document = claims.ask_offered()
    assert not is_offered
    assert document["problems"] == ["the kubelet has not taken the driver gpu.nvidia.com"]
    claims.register()
    assert claims.ask_offered() == (True, {"interface": "dra", "offered": 2, "held": 0, "problems": []})
    claims.change_to("devicePlugin")
    assert claims.ask_offered() == (True, {"interface": "devicePlugin", "offered": 2, "held": 0, "problems": []})
    assert not claims.slices()
    assert len(claims.kubelet.healthy(RESOURCE)) == 2


def test_nothing_is_offered_before_a_kubelet_has_taken_the_driver(claims: Claims) -> None:
    claims.connect()
    claims.daemon.wait_for_log("driver version")
    assert not claims.slices()
    claims.hang_up()
    claims.register()
    claims.wait_for(*DEVICES[:2])
    claims.hang_up()  # the kubelet stops, and the next one deletes the slices of its node
    claims.control_plane.kubectl(["delete", "resourceslices", "--all"])
    claims.connect()
    assert not claims.slices()
    claims.hang_up()
    claims.register()
    claims.wait_for(*DEVICES[:2])


def test_a_lost_gpu_has_a_taint_and_is_told_as_unhealthy(claims: Claims) -> None:
    claims.register()
    claims.wait_for(*DEVICES[:2])
    write_driver(claims.daemon.driver, Snapshot(VERSION, gpus(1), lost=(LostGpu(1, gpu(1).uuid, "fell off the bus"),)))
    wait_until(lambda: "taints" in claims.offered()[DEVICES[1]], claims.daemon.log)
    assert claims.offered()[DEVICES[1]]["taints"][0]["key"] == "gpu.nvidia.com/gpu-lost"
    assert "taints" not in claims.offered()[DEVICES[0]]
    assert claims.health() == {DEVICES[0]: health_pb2.HEALTHY, DEVICES[1]: health_pb2.UNHEALTHY}


def test_a_node_changes_over_under_a_running_pod_and_back(claims: Claims) -> None:
    claims.declare("devicePlugin")
    claims.daemon.stop()
    claims.daemon.start()
    claims.kubelet.wait_for_devices(RESOURCE, 2)
    old = pod("old", Container("c", 1))
    claims.kubelet.admit(old)
    (held,) = claims.kubelet.device_manager.allocated[RESOURCE]
    claims.change_to("dra")
    claims.register()
    claims.wait_for(*(name for name in DEVICES[:2] if name != held.lower()))
    claims.kubelet.device_manager.remove(old)
    claims.wait_for(*DEVICES[:2])
    uid = claims.create("new", DEVICES[0])
    assert claims.prepare("new", uid).error == ""
    # Without the API through which the slices were published.
    claims.daemon.configure(nodeName=claims.node, cdiFolder=str(claims.daemon.node / "cdi"))
    claims.restart()
    wait_until(lambda: not claims.slices(), claims.daemon.log)
    wait_until(lambda: claims.kubelet.healthy(RESOURCE) == [gpu(1).uuid], claims.daemon.log)
    claims.hang_up()
    claims.register()
    assert claims.unprepare("new", uid) == ""
    wait_until(lambda: len(claims.kubelet.healthy(RESOURCE)) == 2, claims.daemon.log)
    wait_until(lambda: not list(claims.registry.glob("*.sock")), claims.daemon.log)
    assert not (claims.daemon.node / "state/claims").exists()
    assert not (claims.daemon.node / "cdi/grapnel-claims.json").exists()
