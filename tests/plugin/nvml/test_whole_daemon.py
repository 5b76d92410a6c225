"""`grapnel-node run` and `devices` as they are shipped: the command line, NVML's library, a kubelet."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.kubelet import Kubelet
from lab.nvml import install, models, state
from tests.plugin.daemon_process import RESOURCE, wait_until
from tests.plugin.fakes import make_dev

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parents[3]
SCRIPT = "import sys; from plugin.cli import main; sys.exit(main())"


class Node:
    """A folder with a library, device nodes and a configuration."""

    def __init__(self, folder: Path, gpus: int) -> None:
        self.folder = folder
        self.machine = models.machine("a100-40gb", gpus)
        self.uuids = [gpu.uuid for gpu in self.machine.gpus]
        self.library = install(folder / "lib", "550.163.01", self.machine)
        make_dev(folder / "dev", gpus)
        config = {
            "kubeletRoot": str(folder / "kubelet"),
            "devRoot": str(folder / "dev"),
            "hookPath": "/bin/true",
            "refreshSeconds": 0.1,
            "retrySeconds": 0.1,
        }
        (folder / "node.json").write_text(json.dumps(config))

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-c", SCRIPT, *arguments, "--config", str(self.folder / "node.json")]

    def environment(self) -> dict[str, str]:
        library_path = str(self.library.parent)
        return {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "LD_LIBRARY_PATH": library_path}

    def log(self) -> str:
        return (self.folder / "log").read_text()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, 2)


@pytest.fixture
def daemon(node: Node) -> Iterator[subprocess.Popen[bytes]]:
    with (node.folder / "log").open("wb") as log:
        process = subprocess.Popen(node.command("run"), env=node.environment(), stderr=log)
    yield process
    process.kill()
    process.wait()


def test_a_gpu_falls_off_the_bus_and_comes_back(node: Node, daemon: subprocess.Popen[bytes]) -> None:
    with Kubelet(node.folder / "kubelet") as kubelet:
        assert kubelet.wait_for_devices(RESOURCE, 2) == sorted(node.uuids)
        state.update(node.library, lambda machine: machine.with_gpu_lost(0))
        assert kubelet.wait_for_devices(RESOURCE, 1) == [node.uuids[1]]
        answer = kubelet.allocate(RESOURCE, 1, "pod").response
        assert answer.annotations["grapnel.dev/allocation"] == node.uuids[1]
        state.update(node.library, lambda machine: replace(machine, failures=()))
        kubelet.wait_for_devices(RESOURCE, 2)
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(20) == 0
        wait_until(lambda: kubelet.capacity(RESOURCE) == 0, node.log)
    assert "msg=stopping" in node.log()


def test_devices_are_shown_as_a_table_and_as_json(node: Node) -> None:
    (node.folder / "dev/nvidia1").unlink()
    table = subprocess.run(node.command("devices"), env=node.environment(), capture_output=True, text=True, check=True)
    lines = table.stdout.splitlines()
    assert lines[0] == "driver 550.163.01"
    assert lines[1].split() == ["INDEX", "UUID", "NODE", "PCI", "NUMA", "MEMORY", "MODEL"]
    assert [line.split()[1] for line in lines[2:]] == node.uuids[:1]
    assert table.stderr == f"note: {node.uuids[1]} is not offered: it has no device node nvidia1\n"
    shown = json.loads(
        subprocess.run(
            node.command("devices", "--json"), env=node.environment(), capture_output=True, check=True
        ).stdout
    )
    assert [device["uuid"] for device in shown["devices"]] == node.uuids[:1]
    assert shown["findings"] == [table.stderr.removeprefix("note: ").strip()]
