"""What makes an inventory stale, and device nodes that a module left behind when it was reloaded."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from runtime_hook.host.discovery import discover
from runtime_hook.host.fingerprint import is_fresh
from runtime_hook.host.hosttree import HostTree
from tests.runtime_hook.containers import run_hook
from tests.runtime_hook.driverlayers import EVERYTHING, add_imex, add_mig, add_sockets, add_video
from tests.runtime_hook.drivertree import DriverTree, uuid

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.runtime_hook.containers import Container

pytestmark = pytest.mark.functional


def remove_instance(tree: DriverTree) -> None:
    shutil.rmtree(tree.root / "proc/driver/nvidia/capabilities/gpu0/mig/gi2/ci1")


def reload_uvm(tree: DriverTree) -> None:
    """Give UVM another major in the kernel's list; the node of before stays."""
    tree.set_majors({"nvidia": 4, "nvidia-uvm": 511, "nvidia-caps": 4})


def restart_service(tree: DriverTree) -> None:
    shutil.rmtree(tree.root / "run")
    shutil.rmtree(tree.root / "tmp")
    add_sockets(tree)


CHANGES = [
    pytest.param(("mig",), remove_instance, id="a compute instance goes"),
    pytest.param((), add_mig, id="a GPU is put into MIG mode"),
    pytest.param((), add_imex, id="IMEX channels are made"),
    pytest.param(("proc-devices",), reload_uvm, id="UVM is reloaded with another major"),
    pytest.param((), add_video, id="a package with further libraries is installed"),
    pytest.param((), add_sockets, id="a service starts"),
    pytest.param(("sockets",), restart_service, id="a service is restarted"),
    pytest.param((), lambda tree: tree.node("gdrdrv", 56), id="GDRCopy is loaded"),
]


@pytest.mark.parametrize("layout", ["debian", "lib64"])
@pytest.mark.parametrize(("layers", "change"), CHANGES)
def test_a_change_of_any_part_is_noticed(
    tmp_path: Path, objects: Path, layout: str, layers: tuple[str, ...], change: Callable[[DriverTree], None]
) -> None:
    driver = DriverTree(tmp_path / "host", objects, layout=layout, layers=layers).build()
    tree = HostTree(str(driver.root))
    before = discover(tree)
    assert is_fresh(before, tree)
    change(driver)
    assert not is_fresh(before, tree)
    assert is_fresh(discover(tree), tree)


def test_a_client_of_mps_changes_nothing(tmp_path: Path, objects: Path) -> None:
    driver = DriverTree(tmp_path / "host", objects, layers=EVERYTHING).build()
    tree = HostTree(str(driver.root))
    before = discover(tree)
    (driver.root / "tmp/nvidia-mps/client").touch()
    assert is_fresh(before, tree)


@pytest.mark.parametrize(
    ("majors", "stale"),
    [
        pytest.param({"nvidia": 4, "nvidia-uvm": 4}, [], id="all majors are right"),
        pytest.param({"nvidia-frontend": 4, "nvidia-uvm": 4}, [], id="drivers before 550.40 say nvidia-frontend"),
        pytest.param(
            {"nvidia": 4, "nvidia-uvm": 510}, ["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"], id="UVM has another major"
        ),
        pytest.param({"nvidia": 4}, ["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"], id="UVM is not loaded"),
        pytest.param({"sound": 116}, [], id="the kernel lists nothing of NVIDIA, so nothing can be told"),
        pytest.param(
            {"nvidia": 195, "nvidia-uvm": 4},
            ["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1"],
            id="GPUs have another major",
        ),
    ],
)
def test_a_node_of_before_is_told_apart(driver: DriverTree, majors: dict[str, int], stale: list[str]) -> None:
    driver.set_majors(majors)
    found = discover(HostTree(str(driver.root)))
    assert [node.path for node in found.stale] == stale
    given = {device.path for device in found.control} | {gpu.path for gpu in found.gpus}
    assert not given & set(stale)


@pytest.mark.parametrize("majors", [{"nvidia": 4}, {"nvidia": 4, "gdrdrv": 511, "sound": 4}])
def test_no_container_gets_the_node_that_gdrcopy_left_behind(driver: DriverTree, majors: dict[str, int]) -> None:
    """GDRCopy's scripts make its node, and nobody removes it: its major may be another driver's by now."""
    driver.set_majors({"nvidia": 4, "gdrdrv": 4})
    driver.node("gdrdrv", 56)
    tree = HostTree(str(driver.root))
    before = discover(tree)
    assert "gdrdrv" in {device.kind for device in before.control}
    driver.set_majors(majors)
    assert not is_fresh(before, tree)
    found = discover(tree)
    assert "gdrdrv" not in {device.kind for device in found.control}
    assert "/dev/gdrdrv" in [node.path for node in found.stale]


def test_refresh_names_what_is_stale(driver: DriverTree) -> None:
    driver.set_majors({"nvidia": 4, "nvidia-uvm": 510})
    done = run_hook(["refresh", "--root", str(driver.root)])
    assert done.returncode == 0
    assert (
        "device node /dev/nvidia-uvm is stale: major 4 is not its driver's any more (nvidia-modprobe -c0 -u makes it)"
        in done.stderr.decode()
    )


@pytest.mark.parametrize("mode", ["the engine gave it", "the hook would add it"])
def test_a_container_does_not_start_with_a_node_of_before(
    container: Callable[..., Container], driver: DriverTree, mode: str
) -> None:
    """With the node of before nvidia-smi works and CUDA does not, and nobody is told why."""
    driver.set_majors({"nvidia": 4, "nvidia-uvm": 510})
    if mode == "the engine gave it":
        asked = {"devices": [("/dev/nvidia0", 16), ("/dev/nvidia-uvm", 60)]}
        done = container(["/bin/busybox", "true"], **asked).run()
    else:
        settings = {"entitlement": "env"}
        done = container(["/bin/busybox", "true"], settings, environment=[f"NVIDIA_VISIBLE_DEVICES={uuid(0)}"]).run()
    assert done.returncode != 0
    assert "device node /dev/nvidia-uvm is stale" in done.stderr


def test_the_inventory_follows_the_daemons_facts(driver: DriverTree, tmp_path: Path) -> None:
    tree, facts = HostTree(str(driver.root)), tmp_path / "nvml.json"
    before = discover(tree, str(facts))
    assert (before.cuda_version, before.gpus[0].compute_capability) == ("12.4", "8.0")
    gpu = {"uuid": uuid(0), "model": "NVIDIA A30", "brand": "Nvidia", "compute_capability": "8.7", "mig": []}
    head = {"schema": "grapnel.dev/nvml-facts/v1alpha1", "driver_version": driver.version, "cuda_version": "12.9"}
    facts.write_text(json.dumps({**head, "gpus": [gpu]}))
    facts.chmod(0o644)
    assert not is_fresh(before, tree)
    after = discover(tree, str(facts))
    assert is_fresh(after, tree)
    assert (after.cuda_version, after.gpus[0].compute_capability, after.gpus[0].model) == ("12.9", "8.7", "NVIDIA A30")
    assert after.gpus[1].model == before.gpus[1].model
