"""GPUs are cut by MIG while the daemon runs and other GPUs are in use: `grapnel-node mig` with NVML's library."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.kubelet import Container, Kubelet, Pod
from lab.nvml import capabilities, state
from lab.podresources.server import serving
from plugin.changes.driver_change.release.store import sole_change
from plugin.changes.mig_layout.change.store import CHANGE_FILE, OpenMigChange, forget, render_change, write_change
from tests.plugin.daemon.test_whole_daemon import Node
from tests.plugin.daemon_process import RESOURCE
from tests.waiting import wait_until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from lab.nvml.machine import Mig

pytestmark = pytest.mark.functional  # whole daemons, one process a test

ONE, TWO, THREE = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb", "nvidia.com/mig-3g.20gb"
NOT_AS_WANTED = 3


class CutNode(Node):
    """Two A100 of 40 GB, offered with the strategy mixed, and a kubelet that lists its pods."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, 2)
        (folder / "nvidia.yaml").write_text("version: v1\nflags: {migStrategy: mixed}\n")
        capabilities.write(folder / "proc", 2)
        more = {"nvidiaConfigFile": str(folder / "nvidia.yaml"), "procRoot": str(folder / "proc")}
        path = folder / "node.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **more}))
        self.layout = folder / "mig-layout.json"
        self.kubelet = Kubelet(folder / "kubelet")

    def declare(self, devices: dict[str, int] | None, *, gpus: list[int] | str = "all") -> None:
        entry = {"devices": gpus, "migEnabled": devices is not None}
        entry |= {} if devices is None else {"migDevices": devices}
        self.layout.write_text(json.dumps({"version": 1, "layouts": [entry]}))

    def mig(self, act: str, *words: str) -> subprocess.CompletedProcess[str]:
        layout = ["--layout", str(self.layout)] if act in {"plan", "apply"} else []
        return self.run("mig", act, *layout, *words)

    def apply(self, devices: dict[str, int] | None, *, gpus: list[int] | str = "all") -> None:
        self.declare(devices, gpus=gpus)
        done = self.mig("apply")
        assert done.returncode == 0, done.stdout + done.stderr + self.log()

    def admit(self, name: str, resource: str = RESOURCE) -> Pod:
        pod = Pod(name, (Container("main", 1),), resource=resource)
        self.kubelet.admit(pod)
        return pod

    def end(self, pod: Pod) -> None:
        self.kubelet.device_manager.end(pod)
        self.kubelet.device_manager.remove(pod)

    def migs(self, gpu: int) -> tuple[Mig, ...]:
        return state.read(self.library).gpus[gpu].migs

    def places(self, gpu: int) -> list[tuple[str, int]]:
        return sorted((each.profile, each.placement_start) for each in self.migs(gpu))

    @contextmanager
    def served(self) -> Iterator[subprocess.Popen[bytes]]:
        with ExitStack() as stack:
            stack.enter_context(self.kubelet)
            stack.enter_context(serving(self.folder / "kubelet", self.kubelet.device_manager.list_response))
            yield stack.enter_context(self.running())


@pytest.fixture
def node(tmp_path: Path) -> CutNode:
    return CutNode(tmp_path)


def test_a_layout_is_applied_under_a_daemon_while_another_gpu_is_in_use(node: CutNode) -> None:
    with node.served():
        node.kubelet.wait_for_devices(RESOURCE, 2)
        node.admit("of-the-first")
        node.apply({"3g.20gb": 1, "MIG 1g.5gb": 2}, gpus=[1])
        node.kubelet.wait_for_devices(THREE, 1)
        slices = node.kubelet.wait_for_devices(ONE, 2)
        assert node.kubelet.healthy(RESOURCE) == [node.uuids[0]], "the other gpu is offered all the time"
        answer = node.kubelet.allocate(ONE, 1, "of-a-slice").response
    assert node.places(1) == [("1g.5gb", 4), ("1g.5gb", 5), ("3g.20gb", 0)]
    assert state.read(node.library).gpus[0].mig_enabled is False
    assert slices == sorted(each.uuid for each in node.migs(1) if each.profile == "1g.5gb")
    minors = capabilities.minors(2)
    given = next(each for each in node.migs(1) if each.uuid == answer.annotations["grapnel.dev/allocation"])
    own = f"gpu1/gi{given.gpu_instance}"
    wanted = [minors[f"{own}/access"], minors[f"{own}/ci0/access"]]
    assert [each.host_path for each in answer.devices][-2:] == [
        f"{node.folder}/dev/nvidia-caps/nvidia-cap{minor}" for minor in wanted
    ]
    for minor in wanted:
        status = (node.folder / f"dev/nvidia-caps/nvidia-cap{minor}").stat()
        assert stat.S_ISCHR(status.st_mode)
        assert (os.major(status.st_rdev), os.minor(status.st_rdev)) == (507, minor)
    assert not (node.folder / "state/mig-change.json").exists()


def test_what_a_pod_has_stays_and_only_the_rest_is_cut_again(node: CutNode) -> None:
    with node.served():
        node.kubelet.wait_for_devices(RESOURCE, 2)
        node.apply({"3g.20gb": 1, "1g.5gb": 2}, gpus=[1])
        node.kubelet.wait_for_devices(ONE, 2)
        node.admit("a-pod", ONE)
        wait_until(lambda: "allocated devices=MIG-" in node.log(), node.log)
        (held,) = re.findall(r"allocated devices=(MIG-\S+)", node.log())
        node.apply({"2g.10gb": 2, "1g.5gb": 1}, gpus=[1])
        node.kubelet.wait_for_devices(TWO, 2)
        node.kubelet.wait_for_devices(ONE, 1)
    assert [each.uuid for each in node.migs(1) if each.profile == "1g.5gb"] == [held]


def test_a_layout_that_takes_what_a_pod_has_is_refused_by_its_name_and_done_when_it_has_ended(node: CutNode) -> None:
    with node.served():
        node.kubelet.wait_for_devices(RESOURCE, 2)
        node.apply({"1g.5gb": 1})
        node.kubelet.wait_for_devices(ONE, 2)
        pod = node.admit("holds-on", ONE)
        node.declare({"7g.40gb": 1})
        done = node.mig("apply")
        assert done.returncode == NOT_AS_WANTED, done.stderr
        assert "holds-on" in done.stdout
        assert node.kubelet.wait_for_devices(ONE, 1), "it is offered again: it was not changed"
        node.end(pod)
        assert node.mig("apply").returncode == 0
        node.kubelet.wait_for_devices("nvidia.com/mig-7g.40gb", 2)
        assert node.mig("plan").returncode == 0, "applied twice, nothing is left to do"


def test_how_gpus_were_cut_before_is_restored(node: CutNode) -> None:
    with node.served():
        node.kubelet.wait_for_devices(RESOURCE, 2)
        node.apply({"2g.10gb": 1, "1c.3g.20gb": 2}, gpus=[1])
        before = node.places(1)
        node.apply({"1g.5gb": 7}, gpus=[1])
        node.kubelet.wait_for_devices(ONE, 7)
        assert node.mig("restore").returncode == 0
        node.kubelet.wait_for_devices(TWO, 1)
        assert node.mig("restore").returncode == 1, "there is nothing that was before"
    assert node.places(1) == before


def test_a_change_that_was_interrupted_keeps_its_gpus_from_everybody_until_it_goes_on(node: CutNode) -> None:
    (node.folder / "state").mkdir()
    change = OpenMigChange("2026-11-23T23:00:00Z", frozenset({node.uuids[1]}), closes=True)
    (node.folder / "state/mig-change.json").write_text(render_change(change))
    with node.served():
        assert node.kubelet.wait_for_devices(RESOURCE, 1) == [node.uuids[0]]
        wait_until(lambda: "was interrupted" in node.log(), node.log)
        node.apply({"1g.5gb": 2}, gpus=[1])
        node.kubelet.wait_for_devices(ONE, 2)


def test_the_driver_is_let_go_for_a_change_of_the_mode_and_the_other_gpu_stays_offered(node: CutNode) -> None:
    state_folder = node.folder / "state"
    with node.served() as daemon:
        node.kubelet.wait_for_devices(RESOURCE, 2)
        maps = Path(f"/proc/{daemon.pid}/maps")
        with sole_change(state_folder, 10.0):
            change = OpenMigChange("2026-11-23T23:00:00Z", frozenset({node.uuids[1]}), closes=True)
            write_change(state_folder, change)
            wait_until(lambda: "libnvidia-ml" not in maps.read_text(), node.log)
            assert node.kubelet.wait_for_devices(RESOURCE, 1) == [node.uuids[0]]
            daemon.send_signal(signal.SIGHUP)
            wait_until(lambda: "configuration reloaded" in node.log(), node.log)
            assert "libnvidia-ml" not in maps.read_text(), "a reload does not open it"
            forget(state_folder, CHANGE_FILE)
        node.kubelet.wait_for_devices(RESOURCE, 2)
        wait_until(lambda: "libnvidia-ml" in maps.read_text(), node.log)


def test_after_a_reboot_only_gpus_without_instances_are_cut(node: CutNode) -> None:
    node.apply({"1g.5gb": 3})
    other = node.migs(1)[:2]
    state.update(node.library, lambda machine: machine.with_gpu(0, migs=()).with_gpu(1, migs=other))
    assert node.mig("apply", "--at-start").returncode == 0
    assert (len(node.migs(0)), node.migs(1)) == (3, other)


def test_after_a_reboot_every_instance_has_the_place_and_the_uuid_that_it_had(node: CutNode) -> None:
    node.apply({"3g.20gb": 1, "1g.5gb": 1})
    node.apply({"1g.5gb": 2})
    before = {(each.uuid, each.placement_start) for each in node.migs(0)}
    assert {start for _, start in before} == {0, 4}, "one has kept its place"
    state.update(node.library, lambda machine: machine.with_gpu(0, migs=()))
    assert node.mig("apply", "--at-start").returncode == 0
    assert {(each.uuid, each.placement_start) for each in node.migs(0)} == before


def test_capability_nodes_that_a_reboot_took_are_made_where_somebody_else_made_the_instances(node: CutNode) -> None:
    node.apply({"1g.5gb": 3})
    shutil.rmtree(node.folder / "dev/nvidia-caps")
    assert node.mig("apply", "--at-start").returncode == 0
    assert len(list((node.folder / "dev/nvidia-caps").iterdir())) == 2 * 2 * 3


def test_a_layout_that_waits_for_its_turn_is_not_applied_at_the_start(node: CutNode) -> None:
    node.apply({})
    node.declare({"1g.5gb": 3})
    assert node.mig("apply", "--at-start").returncode == 0
    assert node.migs(0) == ()


def test_nothing_is_declared_and_nothing_happens_at_the_start(node: CutNode) -> None:
    done = node.mig("apply", "--at-start")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_an_error_of_one_slice_takes_that_slice_alone_out_of_service(node: CutNode) -> None:
    with node.served():
        node.kubelet.wait_for_devices(RESOURCE, 2)
        node.apply({"1g.5gb": 3}, gpus=[1])
        uuids = node.kubelet.wait_for_devices(ONE, 3)
        bad = node.migs(1)[1]
        state.update(node.library, lambda machine: machine.with_xid(1, 48, bad))
        assert node.kubelet.wait_for_devices(ONE, 2) == [uuid for uuid in uuids if uuid != bad.uuid]
        assert node.kubelet.healthy(RESOURCE) == [node.uuids[0]]
        assert f"device={bad.uuid}" in node.log()


def test_a_released_node_is_cut_and_offers_what_it_has_when_it_is_resumed(node: CutNode) -> None:
    with node.served():
        node.kubelet.wait_for_devices(RESOURCE, 2)
        assert node.run("release").returncode in {0, NOT_AS_WANTED}  # 3: somebody on this machine cannot be looked into
        node.apply({"3g.20gb": 2})
        assert node.run("resume").returncode == 0
        node.kubelet.wait_for_devices(THREE, 4)


def test_what_is_and_what_would_be_is_told_as_json(node: CutNode) -> None:
    node.apply({"1c.3g.20gb": 2}, gpus=[1])
    whole, cut = json.loads(node.mig("show", "--json").stdout)["gpus"]
    assert (whole["migEnabled"], whole["instances"], whole["pciDeviceId"]) == (False, [], "0x20B010DE")
    assert cut["instances"] == [{"profile": "3g.20gb", "start": 0, "size": 4, "compute": [1, 1], "holders": []}]
    node.declare({"7g.40gb": 1}, gpus=[1])
    planned = node.mig("plan", "--json")
    assert planned.returncode == NOT_AS_WANTED
    untouched, changed = json.loads(planned.stdout)["gpus"]
    assert (untouched["declared"], untouched["steps"]) == (False, [])
    assert changed["steps"] == ["destroy 3g.20gb at 0:4 with compute slices 1+1", "create 7g.40gb at 0:8"]
    done = json.loads(node.mig("apply", "--json").stdout)
    assert [each["step"] for each in done["changed"]] == changed["steps"]
    assert (done["waiting"], done["notes"]) == ({}, [each for each in done["notes"] if "only processes" in each])


def test_a_layout_that_no_gpu_has_is_refused_by_all_verbs_and_nothing_is_changed(node: CutNode) -> None:
    node.declare({"1g.10gb": 5})
    assert node.mig("plan").returncode == 1
    done = node.mig("apply")
    assert done.returncode == 1
    assert "there is no room for all of 1g.10gb" in done.stderr
    assert "nothing was changed" in done.stderr
    assert not (node.folder / "state/mig-before.json").exists()
