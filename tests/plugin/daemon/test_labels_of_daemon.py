"""A whole daemon and its labels, and `grapnel-node labels` without one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lab.nvml import install, models
from plugin.driver.snapshot import Snapshot
from tests.plugin.fakes import VERSION, gpus, make_dev, write_driver
from tests.plugin.labels.nodes import is_label
from tests.plugin.released_node import NEW, Node, kubelet, node
from tests.waiting import wait_until

__all__ = ["kubelet", "node"]  # fixtures

pytestmark = pytest.mark.functional  # whole daemons, one process a test

REPOSITORY = Path(__file__).parents[3]
SCRIPT = "import sys; from plugin.cli import main; sys.exit(main())"


def with_file(process: Node) -> Path:
    """Let the daemon leave its labels in a folder of the test."""
    file = process.node / "features.d/gfd"
    file.parent.mkdir()
    process.variables = {"GFD_OUTPUT_FILE": str(file)}
    return file


def labels_in(file: Path) -> dict[str, str]:
    if not file.exists():
        return {}
    pairs = (line.partition("=") for line in file.read_text().splitlines())
    return {name.removeprefix("nvidia.com/"): value for name, _, value in pairs}


def wait_for(process: Node, file: Path, **labels: str) -> dict[str, str]:
    """Wait until the file has these labels, underscores for dots."""
    wanted = {name.replace("_", "."): value for name, value in labels.items()}
    wait_until(lambda: wanted.items() <= labels_in(file).items(), lambda: f"{labels_in(file)}\n{process.log()}")
    return labels_in(file)


def test_labels_follow_the_gpus_and_end_with_the_daemon(node: Node) -> None:
    file = with_file(node)
    with node:
        found = wait_for(node, file, gpu_count="2")
        assert all(is_label(f"nvidia.com/{name}", value) for name, value in found.items())
        write_driver(node.driver, Snapshot("560.35.05", gpus(1)))
        wait_for(node, file, **{"gpu_count": "1", "cuda_driver-version_full": "560.35.05"})
        assert node.stop() == 0
    assert list(file.parent.iterdir()) == []


def test_a_released_node_keeps_its_labels_over_a_restart(node: Node) -> None:
    file = with_file(node)
    with node:
        before = wait_for(node, file, gpu_count="2")
        node.verb("release")
        assert node.stop() == 0
        told = node.log().count("released since")
        node.start()
        write_driver(node.driver, Snapshot(NEW, gpus(2)))
        node.wait_for_log("released since", told + 1)
        assert labels_in(file) == before
        node.verb("resume")
        wait_for(node, file, **{"gpu_count": "2", "cuda_driver-version_full": NEW})


def test_a_killed_daemon_leaves_labels_that_the_next_one_takes_over(node: Node) -> None:
    file = with_file(node)
    with node:
        wait_for(node, file, gpu_count="2")
        node.kill()
        assert labels_in(file)["gpu.count"] == "2"
        write_driver(node.driver, Snapshot(VERSION, (replace(gpus(1)[0], model="NVIDIA L4"),)))
        node.start()
        wait_for(node, file, gpu_count="1", gpu_product="NVIDIA-L4")


def test_a_driver_that_went_away_takes_no_label_with_it(node: Node) -> None:
    file = with_file(node)
    with node:
        before = wait_for(node, file, gpu_count="2")
        write_driver(node.driver, None)
        node.wait_for_log("driver not loaded")
        node.signal(signal.SIGHUP)
        node.wait_for_log("configuration reloaded")
        assert labels_in(file) == before


# Without a daemon


def shown(folder: Path, *arguments: str, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    own = {"stateFolder": str(folder / "state"), "devRoot": str(folder / "dev"), "sysRoot": str(folder / "sys")}
    (folder / "node.json").write_text(json.dumps(own))
    path = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "LD_LIBRARY_PATH": str(folder)}
    command = [sys.executable, "-c", SCRIPT, "labels", "--config", str(folder / "node.json"), *arguments]
    done = subprocess.run(command, env={**path, **variables}, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code, done.stderr
    return done


def make_node(folder: Path) -> None:
    machine = models.with_mig(models.machine("a100-40gb", 1), 0, ["2g.10gb"])
    install(folder, VERSION, machine)
    make_dev(folder / "dev", 1)
    device = folder / "sys/bus/pci/devices" / machine.gpus[0].pci_address
    device.mkdir(parents=True)
    (device / "class").write_text("0x030200\n")
    (folder / "type").write_text("Standard_ND96asr_v4\n")


def test_labels_are_shown_without_a_daemon(tmp_path: Path) -> None:
    make_node(tmp_path)
    flags = ("--mig-strategy", "single", "--no-timestamp", "--machine-type-file", str(tmp_path / "type"))
    document = json.loads(shown(tmp_path, "--json", *flags).stdout)
    expected = {
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-2g.10gb",
        "nvidia.com/gpu.count": "1",
        "nvidia.com/gpu.memory": "9856",
        "nvidia.com/gpu.slices.gi": "2",
        "nvidia.com/gpu.machine": "Standard_ND96asr_v4",
        "nvidia.com/gpu.mode": "compute",
        "nvidia.com/gpu.family": "ampere",
        "nvidia.com/mig.capable": "true",
        "nvidia.com/cuda.runtime-version.full": "12.4",
    }
    assert {name: document["labels"].get(name) for name in expected} == expected
    assert "nvidia.com/gfd.timestamp" not in document["labels"]
    assert document["notes"] == []
    lines = shown(tmp_path, *flags).stdout.splitlines()
    assert lines == [f"{name}={value}" for name, value in document["labels"].items()]


def test_labels_of_a_released_node_are_not_asked_for(tmp_path: Path) -> None:
    make_node(tmp_path)
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state/released.json").write_text("damaged")
    done = shown(tmp_path, code=1)
    assert "the driver is not asked" in done.stderr
    assert "hint: the labels stay as they were" in done.stderr
