"""A control plane without nodes: real processes on the loopback interface."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from lab.cluster import ClusterError, ControlPlane, StartError
from lab.nodes.cgroup import hierarchies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.functional
DEADLINE_S = 60.0
BOUND = """
import sys, time
from pathlib import Path
from lab.cluster import ControlPlane
with ControlPlane(Path(sys.argv[1])).running():
    print("running", flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("control-plane")).running() as made:
        yield made


def await_(what: str, is_so: Callable[[], bool]) -> None:
    """Wait for something that a healthy machine does within seconds."""
    end = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < end, f"after {DEADLINE_S:g} s still not so: {what}"
        time.sleep(0.05)


def pid(control_plane: ControlPlane, name: str) -> int:
    return next(process.pid for process in control_plane.status() if process.name == name)


def groups(control_plane: ControlPlane) -> list[Path]:
    return [path for hierarchy in hierarchies() if (path := hierarchy / control_plane.group.name).exists()]


def test_its_folder_is_nobody_elses(control_plane: ControlPlane) -> None:
    assert control_plane.folder.stat().st_mode & 0o077 == 0
    keys = [control_plane.kubeconfig, *control_plane.certificates.folder.glob("*.key")]
    assert {path.stat().st_mode & 0o777 for path in keys} == {0o600}


def test_only_the_api_server_listens_and_only_on_its_address(control_plane: ControlPlane) -> None:
    listed = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout.splitlines()
    own = [f"pid={process.pid}," for process in control_plane.status()]
    listening = [line.split()[3] for line in listed if any(word in line for word in own)]
    assert listening == [f"127.0.0.1:{control_plane.port}"]


def test_it_takes_objects_and_keeps_them_over_a_restart(control_plane: ControlPlane) -> None:
    control_plane.kubectl(["create", "configmap", "kept", "--from-literal=a=b"])
    port = control_plane.port

    control_plane.stop()
    assert not control_plane.api.is_ready()
    assert groups(control_plane) == []
    control_plane.start(is_bound=True)

    assert control_plane.port == port
    kept = json.loads(control_plane.kubectl(["get", "configmap", "kept", "-o", "json"]))
    assert kept["data"] == {"a": "b"}


def test_a_start_again_changes_nothing(control_plane: ControlPlane) -> None:
    before = control_plane.status()
    control_plane.start()
    assert control_plane.status() == before


def test_a_process_that_crashes_is_started_again(control_plane: ControlPlane) -> None:
    before = pid(control_plane, "kube-apiserver")
    os.kill(before, signal.SIGKILL)
    await_("the API server is another process", lambda: pid(control_plane, "kube-apiserver") not in (0, before))
    control_plane.wait_ready()
    crashed = next(process for process in control_plane.status() if process.name == "kube-apiserver")
    assert (crashed.starts, crashed.status) == (2, -signal.SIGKILL)


def test_without_its_supervisor_everything_ends_and_can_be_started(control_plane: ControlPlane) -> None:
    report = json.loads((control_plane.folder / "processes.json").read_text())
    os.kill(report["supervisor"], signal.SIGKILL)
    await_("no process is left", lambda: not control_plane.group.pids())
    assert {process.pid for process in control_plane.status()} == {0}
    control_plane.start(is_bound=True)
    assert control_plane.api.is_ready()


def test_a_port_in_use_is_said_at_once(control_plane: ControlPlane, tmp_path: Path) -> None:
    second = ControlPlane(tmp_path, port=control_plane.port)
    expected = f"the api server cannot listen on 127.0.0.1:{control_plane.port}: address already in use"
    with pytest.raises(ClusterError, match=expected):
        second.start()
    assert groups(second) == []


def test_what_keeps_ending_is_named_with_its_log(tmp_path: Path) -> None:
    broken = ControlPlane(tmp_path)
    broken.certificates.prepare("127.0.0.1")
    broken.certificates.key("apiserver").write_text("no key")
    try:
        with pytest.raises(StartError, match="kube-apiserver exits with status 1") as failed:
            broken.start(is_bound=True)
    finally:
        broken.kill()
    assert "failed to find any PEM data in key input" in failed.value.hint


def test_one_that_is_bound_ends_with_its_owner(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", BOUND, str(tmp_path)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "running\n"
        bound = ControlPlane(tmp_path)
        port = bound.port
        assert bound.group.pids()
        owner.kill()
    await_("processes and control groups are gone", lambda: not groups(bound))
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
