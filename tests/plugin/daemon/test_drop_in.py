"""`grapnel-node run` with nothing but what NVIDIA's plugin takes: flags, variables, a file, a driver's tree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.kubelet import Kubelet
from lab.nvml import install, models
from tests.plugin.fakes import make_dev
from tests.waiting import wait_until

if TYPE_CHECKING:
    from lab.nvml.machine import Machine

pytestmark = pytest.mark.functional  # whole daemons, one process a test

REPOSITORY = Path(__file__).parents[3]
SCRIPT = "import sys; from plugin.cli import main; sys.exit(main())"
FILE = """
version: v1
flags:
  migStrategy: mixed
  plugin: {deviceIDStrategy: index}
resources:
  gpus: [{pattern: "*A100*40GB", name: gpu-a100}]
"""


def make_capabilities(dev: Path, proc: Path, machine: Machine) -> None:
    """Give the first GPU's only MIG device its two capabilities, as the driver names them."""
    device = machine.gpus[0].migs[0]
    instance = f"gpu0/gi{device.gpu_instance}"
    (proc / "driver/nvidia-caps").mkdir(parents=True)
    (proc / "driver/nvidia-caps/mig-minors").write_text(
        f"config 1\nmonitor 2\n{instance}/access 21\n{instance}/ci{device.compute_instance}/access 22\n"
    )
    (dev / "nvidia-caps").mkdir()
    for minor in (21, 22):
        (dev / f"nvidia-caps/nvidia-cap{minor}").symlink_to("/dev/null")


def start(folder: Path, *flags: str, **variables: str) -> subprocess.Popen[bytes]:
    own = {name: str(folder / name) for name in ("state", "run")}
    node_json = {
        "hookPath": "/bin/true",
        "adminSocket": f"{own['run']}/node.sock",
        "stateFolder": own["state"],
        "procRoot": str(folder / "proc"),
        "refreshSeconds": 0.1,
    }
    (folder / "node.json").write_text(json.dumps(node_json))
    (folder / "nvidia.yaml").write_text(FILE)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), **variables}
    command = [sys.executable, "-c", SCRIPT, "run", "--config", str(folder / "node.json"), *flags]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(command, env=environment, stderr=log)


def test_a_node_runs_with_flags_variables_and_a_file_of_nvidias(tmp_path: Path) -> None:
    driver, socket = tmp_path / "driver", tmp_path / "kubelet/device-plugins/kubelet.sock"
    (driver / "usr/lib64").mkdir(parents=True)
    machine = models.with_mig(models.machine("a100-40gb", 2), 0, ["3g.20gb"])
    install(driver / "usr/lib64", "550.163.01", machine)
    make_dev(driver / "dev", 2)
    make_capabilities(driver / "dev", tmp_path / "proc", machine)
    flags = (f"--kubelet-socket={socket}", "--config-file", str(tmp_path / "nvidia.yaml"))
    variables = {"NVIDIA_DRIVER_ROOT": str(driver), "DEVICE_LIST_STRATEGY": "envvar,volume-mounts"}
    with Kubelet(tmp_path / "kubelet") as kubelet:
        process = start(tmp_path, *flags, **variables)
        try:
            whole = machine.gpus[1].uuid
            assert kubelet.wait_for_devices("nvidia.com/gpu-a100", 1) == [whole]
            response = kubelet.allocate("nvidia.com/gpu-a100", 1, "pod").response
            (part,) = kubelet.wait_for_devices("nvidia.com/mig-3g.20gb", 1)
            of_part = kubelet.allocate("nvidia.com/mig-3g.20gb", 1, "other").response
        finally:
            process.kill()
            process.wait()
    assert response.annotations["grapnel.dev/allocation"] == whole
    assert [mount.container_path for mount in response.mounts] == ["/var/run/nvidia-container-devices/1"]
    assert response.devices[-1].host_path == f"{driver}/dev/nvidia1"
    assert part == machine.gpus[0].migs[0].uuid
    assert of_part.annotations["grapnel.dev/allocation"] == part
    assert [node.container_path for node in of_part.devices][-3:] == [
        "/dev/nvidia0",
        "/dev/nvidia-caps/nvidia-cap21",
        "/dev/nvidia-caps/nvidia-cap22",
    ]


def test_fail_on_init_error_is_an_expected_failure_with_a_hint(tmp_path: Path) -> None:
    process = start(tmp_path, "--fail-on-init-error", "--nvidia-driver-root", str(tmp_path))
    log = tmp_path / "log"
    wait_until(lambda: process.poll() is not None, log.read_text)
    assert process.returncode == 1
    assert f"grapnel-node: there is no libnvidia-ml.so.1 below {tmp_path}" in log.read_text()
    assert "hint: failOnInitError is set" in log.read_text()
