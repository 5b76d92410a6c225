"""What `devices`, `labels` and `config --explain` say of GPUs of which nothing is offered, without a daemon."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab.nvml import install, models
from lab.nvml.models import spark
from tests.plugin.fakes import VERSION, make_dev

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lab.nvml.machine import Machine

pytestmark = pytest.mark.functional  # a process each

REPOSITORY = Path(__file__).parents[3]
SCRIPT = "import sys; from plugin.cli import main; sys.exit(main())"
MPS = {"sharing": {"mps": {"resources": [{"name": "gpu", "replicas": 4}]}}}


def ask(folder: Path, machine: Machine, verb: str, *flags: str, nvidia: object = None, **keys: object) -> Any:
    install(folder, VERSION, machine)
    if not (folder / "dev").is_dir():
        make_dev(folder / "dev", len(machine.gpus))
    places = {"stateFolder": "state", "devRoot": "dev", "sysRoot": "sys", "kubeletRoot": "kubelet", "procRoot": "proc"}
    own: dict[str, object] = {key: str(folder / name) for key, name in places.items()}
    (folder / "proc").mkdir(exist_ok=True)
    (folder / "proc/meminfo").write_text("MemTotal:       127600748 kB\n")
    own["deviceClassesFolder"] = str(folder / "devices.d")
    if nvidia is not None:
        own["nvidiaConfigFile"] = str(folder / "nvidia.json")
        (folder / "nvidia.json").write_text(json.dumps(nvidia))
    (folder / "node.json").write_text(json.dumps({**own, **keys}))
    path = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "LD_LIBRARY_PATH": str(folder)}
    command = [sys.executable, "-c", SCRIPT, verb, "--config", str(folder / "node.json"), *flags]
    return subprocess.run(command, env=path, capture_output=True, text=True, check=False, timeout=60)


def findings(done: Any) -> str:
    assert done.returncode == 0, done.stderr
    document: Mapping[str, Any] = json.loads(done.stdout)
    return "\n".join(document["findings"])


def test_devices_says_that_a_gpu_of_unknown_memory_is_not_shared_through_mps(tmp_path: Path) -> None:
    """It said healthy, and nothing of the shares that nobody could have."""
    done = ask(tmp_path, spark(), "devices", "--json", nvidia=MPS)
    assert "cannot be shared through MPS: the driver does not say how much memory it has" in findings(done)
    shown = ask(tmp_path, spark(), "labels", "--json", nvidia=MPS)
    labels = json.loads(shown.stdout)["labels"]
    assert (labels["nvidia.com/gpu.sharing-strategy"], labels["nvidia.com/mps.capable"]) == ("none", "false")


def test_devices_says_which_gpu_is_given_by_which_interface(tmp_path: Path) -> None:
    machine, both = models.machine("a100-40gb", 3), {"interface": "both", "kubernetesApi": "/absent", "claims": ["2"]}
    found = json.loads(ask(tmp_path, machine, "devices", "--json", **both).stdout)["devices"]
    assert [each["interface"] for each in found] == ["devicePlugin", "devicePlugin", "dra"]
    assert ask(tmp_path, machine, "devices", **both).stdout.split().count("devicePlugin") == 2
    assert "INTERFACE" not in ask(tmp_path, machine, "devices").stdout
    places = [{"uuid": each["uuid"], "pciAddress": each["pciAddress"]} for each in reversed(found)]
    (tmp_path / "state").mkdir(exist_ok=True)
    (tmp_path / "state/division.json").write_text(json.dumps({"claims": ["2"], "gpus": places}))
    found = json.loads(ask(tmp_path, machine, "devices", "--json", **both).stdout)["devices"]
    assert [each["interface"] for each in found] == ["dra", "devicePlugin", "devicePlugin"]


def test_devices_says_of_what_size_nobody_knows(tmp_path: Path) -> None:
    unknown = replace(spark().gpus[0], name="NVIDIA X", compute_minor=0)
    machine = replace(spark(), gpus=(unknown,))
    done = ask(tmp_path, machine, "devices", "--json", memoryUnits=[{}])
    assert "is not offered: the driver does not say how much memory it has" in findings(done)
    assert "is not offered" in ask(tmp_path, machine, "devices", memoryUnits=[{}]).stderr
    assert findings(ask(tmp_path, machine, "devices", "--json", memoryUnits=[{"memoryMiB": 98304}])) == ""


def test_a_gb10_is_offered_in_units_of_the_machines_memory(tmp_path: Path) -> None:
    done = ask(tmp_path, spark(), "devices", "--json", memoryUnits=[{}])
    assert findings(done) == ""
    assert json.loads(done.stdout)["devices"][0]["memoryBytes"] == 127600748 * 1024
    labels = json.loads(ask(tmp_path, spark(), "labels", "--json", memoryUnits=[{}]).stdout)["labels"]
    assert (labels["nvidia.com/gpu.sharing-strategy"], labels["nvidia.com/gpu.replicas"]) == ("memory", "121")


def test_a_list_that_no_kubelet_takes_is_refused_by_config_explain(tmp_path: Path) -> None:
    machine = models.machine("a100-40gb", 2)
    done = ask(tmp_path, machine, "config", "--explain", memoryUnits=[{"unitMiB": 1}])
    assert done.returncode == 1
    assert "memoryUnits" in done.stdout
    assert "aliyun.com/gpu-mem is not offered: its list of 81,920 devices has " in done.stderr
    assert " bytes, and a kubelet takes 4,194,304" in done.stderr
    assert ask(tmp_path, machine, "config", "--explain", memoryUnits=[{"unitMiB": 2}]).returncode == 0
    assert "is not offered" in findings(ask(tmp_path, machine, "devices", "--json", memoryUnits=[{"unitMiB": 1}]))
