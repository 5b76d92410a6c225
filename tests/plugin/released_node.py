"""A daemon as a process, the verbs that release and resume it, and a kubelet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab.kubelet import Kubelet
from tests.plugin.daemon.test_daemon import open_when_read
from tests.plugin.daemon_process import DaemonProcess
from tests.plugin.fakes import gpus

if TYPE_CHECKING:
    from collections.abc import Iterator


UUIDS = [each.uuid for each in gpus(2)]
NEW = "560.35.05"
ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[2])}
# The verbs with an empty /proc and no NVML: what other processes of this machine hold is not part of these tests.
VERB = """
import sys
from pathlib import Path
from plugin.cli.release import release_node, resume_node
verb, config, proc = sys.argv[1:4]
extra = {"proc": Path(proc), "states": lambda root, timeout_s: {}} if verb == "release" else {}
act = release_node if verb == "release" else resume_node
sys.exit(act(Path(config), timeout_s=float(sys.argv[4]), as_json=True, **extra))
"""


class Node(DaemonProcess):
    """A daemon, and the verbs beside it."""

    @property
    def state(self) -> Path:
        return self.node / "state"

    def command(self, verb: str, timeout_s: float = 60) -> list[str]:
        proc = self.node / "proc"
        proc.mkdir(exist_ok=True)
        return [sys.executable, "-c", VERB, verb, str(self.node / "node.json"), str(proc), str(timeout_s)]

    def verb(self, verb: str, timeout_s: float = 60, code: int = 0) -> dict[str, Any]:
        command = self.command(verb, timeout_s)
        done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == code, f"{done.stdout}{done.stderr}{self.log()}"
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    with Kubelet(tmp_path / "kubelet-root", has_pod_resources=True) as stand_in:
        yield stand_in


@pytest.fixture
def node(tmp_path: Path, kubelet: Kubelet) -> Node:
    process = Node(tmp_path)
    process.kubelet_root = kubelet.folder.parent
    process.configure()
    return process


def made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def hang_driver(node: Node) -> int:
    """Let the daemon's next look at the driver never end; close what is returned to end it."""
    pipe = node.node / "pipe"
    os.mkfifo(pipe)
    pipe.rename(node.driver)
    return open_when_read(node.driver)
