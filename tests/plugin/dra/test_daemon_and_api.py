"""The whole daemon as a DRA driver: a real API server on one side, calls as a kubelet makes them on the other."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lab.kubelet import Kubelet
from lab.kubelet.claims import DRIVER, DraKubelet, create_allocated, published
from lab.kubelet.device_manager import Container
from lab.kubelet.proto.dra_health.v1alpha1 import api_pb2 as health_pb2
from plugin.driver.snapshot import LostGpu, Snapshot
from plugin.sharing.mps.plan import MpsDaemon
from tests.plugin.daemon_process import RESOURCE, DaemonProcess
from tests.plugin.fakes import VERSION, gpu, gpus, write_driver
from tests.plugin.kubelet_pods import pod
from tests.plugin.mps.node import made_node
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.cluster import ControlPlane

pytestmark = pytest.mark.functional  # a daemon of its own for each test, and an API server

DEVICES = [f"gpu-{gpu(index).uuid.removeprefix('GPU-')}" for index in range(4)]


class Claims(DraKubelet):
    """A daemon on one node, what the API has of it, and the kubelet that asks it."""

    def __init__(self, control_plane: ControlPlane, node: str, folder: Path, kubelet: Kubelet) -> None:
        super().__init__(kubelet.folder.parent)
        self.control_plane = control_plane
        self.node = node
        self.kubelet = kubelet
        self.daemon = DaemonProcess(folder, 2)
        self.daemon.kubelet_root = kubelet.folder.parent
        self.kubeconfig = folder / "kubelet.conf"
        self.kubeconfig.write_text(control_plane.render_kubeconfig(control_plane.certificates.prepare_node(node)))
        self.declare("dra")

    def declare(self, interface: str, **keys: object) -> None:
        self.daemon.configure(
            interface=interface,
            kubernetesApi=str(self.kubeconfig),
            nodeName=self.node,
            cdiFolder=str(self.daemon.node / "cdi"),
            **keys,
        )

    def change_to(self, interface: str, **keys: object) -> None:
        self.declare(interface, **keys)
        self.daemon.signal(signal.SIGHUP)

    def ask_offered(self, within_s: float = 10) -> tuple[bool, dict[str, Any]]:
        """Ask the daemon's command whether GPUs are offered as its file says."""
        words = ["offered", "--json", f"--timeout={within_s:g}", "--config", str(self.daemon.node / "node.json")]
        done = subprocess.run(
            [sys.executable, "-P", "-m", "plugin.launcher", *words], stdout=subprocess.PIPE, check=False
        )
        return done.returncode == 0, json.loads(done.stdout)

    def wait_for_problems(self, *problems: str) -> None:
        """Wait until that is what the command says of GPUs that are not offered."""

        def are_told() -> bool:
            is_offered, document = self.ask_offered(within_s=1)
            return not is_offered and document["problems"] == list(problems)

        wait_until(are_told, self.daemon.log)

    def slices(self) -> list[dict[str, Any]]:
        return published(self.control_plane, self.node)

    def offered(self) -> dict[str, dict[str, Any]]:
        return {row["name"]: row for each in self.slices() for row in each["spec"].get("devices", [])}

    def wait_for(self, *devices: str) -> None:
        wait_until(
            lambda: set(self.offered()) == set(devices), lambda: f"{sorted(self.offered())}\n{self.daemon.log()}"
        )

    def create(self, name: str, *devices: str, config: dict[str, Any] | None = None, **result: object) -> str:
        return create_allocated(self.control_plane, self.node, name, devices, config, **result)

    def connect(self) -> None:
        wait_until(lambda: len(self.sockets) == 1, self.daemon.log)
        super().connect()

    def register(self) -> list[str]:
        """Take the driver, as a kubelet that has found its socket does; returns the versions that it speaks."""
        self.connect()
        info = self.take()
        assert (info.type, info.name) == ("DRAPlugin", DRIVER)
        return list(info.supported_versions)

    def close(self) -> None:
        """Hang up, and leave the API as it was."""
        self.hang_up()
        self.control_plane.kubectl(["delete", "pods,resourceclaims", "--all", "--force", "--wait=false"])

    def restart(self) -> None:
        """Kill the daemon, and start it; the socket that it left behind goes."""
        (before,) = self.sockets
        self.daemon.kill()
        self.daemon.start()
        wait_until(lambda: not before.exists(), self.daemon.log)

    def cdi_file(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.daemon.node / "cdi/grapnel-claims.json").read_text())
        return found


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    with Kubelet(tmp_path / "kubelet-root", has_pod_resources=True) as stand_in:
        yield stand_in


@pytest.fixture
def claims(control_plane: ControlPlane, node: str, tmp_path: Path, kubelet: Kubelet) -> Iterator[Claims]:
    with closing(Claims(control_plane, node, tmp_path, kubelet)) as made, made.daemon:
        yield made


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
    nodes = {each["name"]: each["containerEdits"].get("deviceNodes") for each in file["devices"]}
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


CONFIG = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
LONG = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}
HALF = {"defaultActiveThreadPercentage": 50, "defaultPinnedDeviceMemoryLimit": "10Gi"}
SMI = """#!/bin/sh\necho "$3 $5" >> "$(dirname "$0")/time-slices"\n"""


def test_claims_of_nvidias_examples_have_their_time_slices_and_their_mps_server(
    control_plane: ControlPlane, node: str, tmp_path: Path, kubelet: Kubelet
) -> None:
    """As gpu-test5 of demo/specs/quickstart/v1; a kill in between changes nothing, and all is as before at the end."""
    with made_node() as mps, closing(Claims(control_plane, node, tmp_path, kubelet)) as claims:
        smi, calls = tmp_path / "nvidia-smi", tmp_path / "time-slices"
        smi.write_text(SMI)
        smi.chmod(0o755)
        (tmp_path / "nvidia.yaml").write_text(json.dumps({"version": "v1", "flags": {"mpsRoot": str(mps.root)}}))
        claims.daemon.variables["GRAPNEL_TEST_MPS"] = str(mps.programs.root)
        claims.declare("dra", nvidiaConfigFile=str(tmp_path / "nvidia.yaml"))
        with claims.daemon:
            claims.register()
            claims.wait_for(*DEVICES[:2])
            sliced = claims.create("sliced", DEVICES[0], config={**CONFIG, "sharing": LONG})
            by_mps = claims.create(
                "by-mps", DEVICES[1], config={**CONFIG, "sharing": {"strategy": "MPS", "mpsConfig": HALF}}
            )
            assert claims.prepare("sliced", sliced).error == ""
            assert calls.read_text().split() == [gpu(0).uuid, "3"]
            assert claims.prepare("by-mps", by_mps).error == ""
            (device,) = claims.prepare("by-mps", by_mps).devices
            edits = {f"grapnel.dev/gpu={each['name']}": each["containerEdits"] for each in claims.cdi_file()["devices"]}
            client = edits[device.cdi_device_ids[1]]
            pipe = mps.root / gpu(1).uuid / "pipe"
            assert client["env"] == [f"CUDA_MPS_PIPE_DIRECTORY={pipe}"]
            assert [each["containerPath"] for each in client["mounts"]] == [str(pipe), "/dev/shm"]
            served = MpsDaemon(gpu(1).uuid, pipe.parent, 1, 0, 0)
            assert mps.says(served, "get_default_active_thread_percentage") == "50.0"
            assert mps.says(served, f"get_default_device_pinned_mem_limit {gpu(1).uuid}") == "10G"
            before = mps.pid(served)
            claims.restart()
            claims.register()
            assert claims.prepare("by-mps", by_mps).devices[0] == device
            assert mps.pid(served) == before
            assert [claims.unprepare("sliced", sliced), claims.unprepare("by-mps", by_mps)] == ["", ""]
            wait_until(lambda: not mps.runs(served), claims.daemon.log)
            wait_until(lambda: calls.read_text().endswith(f"{gpu(0).uuid} 0\n"), claims.daemon.log)
            wait_until(lambda: not list((claims.daemon.node / "run/time-slices").iterdir()), claims.daemon.log)


UNITS = {"memoryUnits": [{"devices": ["0"], "unitMiB": 1024}]}


def test_claims_have_parts_of_a_gpus_memory_and_the_hook_that_limits_them(claims: Claims) -> None:
    claims.daemon.stop()
    claims.declare("dra", **UNITS, memoryLimits="required")
    claims.daemon.start()
    claims.register()
    claims.wait_for(*DEVICES[:2])
    shown = claims.offered()[DEVICES[0]]
    assert shown["allowMultipleAllocations"]
    policy = {"default": "80Gi", "validRange": {"min": "1Gi", "max": "80Gi", "step": "1Gi"}}
    assert shown["capacity"] == {"memory": {"value": "80Gi", "requestPolicy": policy}}
    before = [each["metadata"]["resourceVersion"] for each in claims.slices()]
    share = {"shareID": "11111111-aaaa-bbbb-cccc-000000000001", "consumedCapacity": {"memory": "10Gi"}}
    uid = claims.create("part", DEVICES[0], **share)
    (device,) = claims.prepare("part", uid).devices
    name = f"memory-{10 << 30}-{gpu(0).uuid}"
    assert device.cdi_device_ids == [f"grapnel.dev/gpu={gpu(0).uuid}", f"grapnel.dev/gpu={name}"]

    def hooks() -> list[list[str]]:
        edits = {each["name"]: each["containerEdits"] for each in claims.cdi_file()["devices"]}
        return [each["args"] for each in edits.get(name, {}).get("hooks", [])]

    assert hooks() == [["grapnel-hook", "limit", f"required,{gpu(0).uuid}={10 << 30}"]]
    share = {"shareID": "11111111-aaaa-bbbb-cccc-000000000002", "consumedCapacity": {"memory": "71Gi"}}
    assert "still has" in claims.prepare("rest", claims.create("rest", DEVICES[0], **share)).error
    claims.restart()
    claims.register()
    assert claims.prepare("part", uid).devices[0] == device
    assert [each["metadata"]["resourceVersion"] for each in claims.slices()] == before
    assert claims.unprepare("part", uid) == ""
    wait_until(lambda: not hooks(), claims.daemon.log)


def test_slices_that_are_deleted_are_there_again(claims: Claims) -> None:
    claims.register()
    claims.wait_for(*DEVICES[:2])
    claims.control_plane.kubectl(["delete", "resourceslices", "--all"])
    claims.wait_for(*DEVICES[:2])


def test_it_is_said_whether_gpus_are_offered_by_the_interface_that_is_declared(claims: Claims) -> None:
    claims.wait_for_problems("the kubelet has not taken the driver gpu.nvidia.com")
    claims.register()
    assert claims.ask_offered() == (True, said("dra", dra=2))
    claims.change_to("devicePlugin")
    assert claims.ask_offered() == (True, said("devicePlugin", devicePlugin=2))
    assert not claims.slices()
    assert len(claims.kubelet.healthy(RESOURCE)) == 2


def said(interface: str, held: int = 0, **offered: int) -> dict[str, Any]:
    """Return what `offered` says of interfaces that offer so many, of which `held` wait for others each."""
    interfaces = {name: {"offered": number, "held": held} for name, number in offered.items()}
    total = {"offered": sum(offered.values()), "held": held * len(offered)}
    return {"interface": interface, **total, "interfaces": interfaces, "problems": []}


def test_claims_and_the_device_plugin_give_their_own_gpus_also_when_they_are_divided_otherwise(claims: Claims) -> None:
    claims.register()
    claims.change_to("both", claims=["1"])
    assert claims.ask_offered() == (True, said("both", devicePlugin=1, dra=1))
    claims.wait_for(DEVICES[1])
    old = pod("old", Container("c", 1))
    claims.kubelet.admit(old)
    assert claims.kubelet.device_manager.allocated[RESOURCE] == {gpu(0).uuid}
    uid = claims.create("new", DEVICES[1])
    assert claims.prepare("new", uid).error == ""
    claims.change_to("both", claims=["0"])
    assert claims.ask_offered() == (True, said("both", held=1, devicePlugin=0, dra=0))
    assert not claims.slices()
    assert claims.kubelet.healthy(RESOURCE) == []
    assert "old" in claims.prepare("late", claims.create("late", DEVICES[0])).error
    claims.restart()
    claims.register()
    claims.kubelet.device_manager.remove(old)
    claims.wait_for(DEVICES[0])
    assert claims.unprepare("new", uid) == ""
    wait_until(lambda: claims.kubelet.healthy(RESOURCE) == [gpu(1).uuid], claims.daemon.log)
    claims.change_to("devicePlugin")
    assert claims.ask_offered() == (True, said("devicePlugin", devicePlugin=2))
    assert not (claims.daemon.node / "state/division.json").exists()


def test_a_gpu_that_is_lost_over_a_restart_moves_no_other_one(claims: Claims) -> None:
    claims.register()
    claims.change_to("both", claims=["1"])
    claims.wait_for(DEVICES[1])
    claims.hang_up()
    left = replace(gpu(1), index=0)
    write_driver(claims.daemon.driver, Snapshot(VERSION, (left,)))
    claims.restart()
    claims.register()
    claims.daemon.wait_for_log("driver version", times=2)
    claims.wait_for(DEVICES[1])
    is_offered, document = claims.ask_offered()
    assert (is_offered, document["problems"]) == (True, []), "what is gone is no fault of an interface"
    assert document["interfaces"]["devicePlugin"] == {"offered": 0, "held": 0}


def test_a_list_that_leaves_the_device_plugin_nothing_is_no_division(claims: Claims) -> None:
    claims.register()
    claims.change_to("both", claims=["0", "1", "7"])
    claims.wait_for_problems(
        "claims names 7, and this node has no such GPU",
        "claims names all GPUs of this node, and leaves none to the device plugin",
    )


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
    # Before Kubernetes 1.36 there are no taints of devices: it is left out.
    wait_until(lambda: "taints" in claims.offered().get(DEVICES[1], {"taints": []}), claims.daemon.log)
    for taint in claims.offered().get(DEVICES[1], {"taints": []})["taints"]:
        assert taint["key"] == "gpu.nvidia.com/gpu-lost"
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
    wait_until(lambda: not claims.sockets, claims.daemon.log)
    assert not (claims.daemon.node / "state/claims").exists()
    assert not (claims.daemon.node / "cdi/grapnel-claims.json").exists()
