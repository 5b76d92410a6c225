"""`python3 -m lab.kubelet` with the real daemon."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lab.kubelet import Kubelet
from tests.plugin.daemon_process import REPOSITORY, RESOURCE, DaemonProcess
from tests.plugin.fakes import gpu

if TYPE_CHECKING:
    from pathlib import Path


LIMIT_S = 60


def command(root: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "lab.kubelet", "--root", str(root), "--timeout", "20", *arguments]


@pytest.mark.slow
def test_allocate_prints_what_a_container_would_get(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path) as daemon:
        done = subprocess.run(
            command(daemon.kubelet_root, "allocate", "1"),
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=True,
        )
    assert json.loads(done.stdout)["annotations"] == {"grapnel.dev/allocation": gpu(0).uuid}


@pytest.mark.slow
def test_allocate_says_why_it_was_refused(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path) as daemon:
        arguments = [*command(daemon.kubelet_root, "allocate", "3")]
        arguments[arguments.index("20")] = "0.5"
        done = subprocess.run(arguments, cwd=REPOSITORY, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("refused: ")


@pytest.mark.slow
def test_watch_prints_every_list(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path) as daemon:
        process = subprocess.Popen(command(daemon.kubelet_root, "watch"), cwd=REPOSITORY, stdout=subprocess.PIPE)
        assert process.stdout is not None
        lists = (json.loads(line) for line in process.stdout)
        healthy = next(line["healthy"] for line in lists if line["watched"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        process.stdout.close()
    assert healthy == [gpu(0).uuid, gpu(1).uuid]


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["near", "f" * 100], ids=["a short path", "a path over the limit of sockets"])
def test_a_kubelet_that_is_running_is_left_alone(folder: str, tmp_path: Path) -> None:
    room = tmp_path / folder
    room.mkdir()
    with DaemonProcess(room) as daemon, Kubelet(daemon.kubelet_root) as kubelet:
        kubelet.wait_for_devices(RESOURCE, 2)
        done = subprocess.run(
            command(daemon.kubelet_root, "watch"),
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 1
        assert "a kubelet is running here" in done.stderr
        assert kubelet.registry.registrations == 1
