"""The whole daemon, NVML's library and a kubelet: errors that happen while it runs, and how each one ends."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from lab.kubelet import Kubelet
from lab.nvml import state
from lab.nvml.machine import Process
from tests.plugin.daemon.test_whole_daemon import Node
from tests.plugin.daemon_process import RESOURCE
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.functional  # whole daemons, one process a test


class Daemon:
    """A daemon that can be killed and started again, and its kubelet."""

    def __init__(self, node: Node, kubelet: Kubelet) -> None:
        self.node = node
        self.kubelet = kubelet
        self._log = (node.folder / "log").open("ab")
        self.start()

    def start(self, **variables: str) -> None:
        command, environment = self.node.command("run"), self.node.environment()
        self._process = subprocess.Popen(command, env={**environment, **variables}, stderr=self._log)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def tasks(self) -> list[str]:
        return [path.read_text() for path in Path(f"/proc/{self._process.pid}/task").glob("*/status")]

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def close(self) -> None:
        self.kill()
        self._log.close()

    def xid(self, gpu: int, number: int) -> None:
        state.update(self.node.library, lambda machine: machine.with_xid(gpu, number))

    def change(self, gpu: int, **changes: object) -> None:
        state.update(self.node.library, lambda machine: machine.with_gpu(gpu, **changes))

    def offers(self, *gpus: int) -> None:
        """Wait until the kubelet may give away exactly these GPUs."""
        wanted = sorted(self.node.uuids[gpu] for gpu in gpus)
        wait_until(lambda: sorted(self.kubelet.healthy(RESOURCE)) == wanted, self.node.log)

    def wait_for_log(self, text: str, times: int = 1) -> None:
        wait_until(lambda: self.node.log().count(text) >= times, self.node.log)

    def health(self, *words: str) -> str:
        done = self.node.run("health", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    node = Node(tmp_path, 3)
    with Kubelet(tmp_path / "kubelet") as kubelet:
        running = Daemon(node, kubelet)
        running.offers(0, 1, 2)
        yield running
        running.close()


def test_an_error_condemns_its_gpu_alone_outlives_a_kill_and_ends_with_a_reset(daemon: Daemon) -> None:
    first = daemon.node.uuids[0]
    daemon.change(0, energy_mj=10_000)
    daemon.xid(1, 31)
    daemon.wait_for_log('cause="xid 31"')
    daemon.xid(0, 48)
    daemon.offers(1, 2)
    with pytest.raises(grpc.RpcError, match="double-bit memory error; needs a reset of the GPU"):
        daemon.kubelet.allocate(RESOURCE, 1, "pod", device_ids=[first])
    daemon.kill()
    daemon.start()
    daemon.wait_for_log("msg=registered", times=2)
    daemon.offers(1, 2)
    shown = daemon.node.run("devices")
    assert re.findall(r" (unhealthy|healthy) ", shown.stdout) == ["unhealthy", "healthy", "healthy"]
    assert f"{first} " in shown.stdout.splitlines()[2]
    assert shown.stdout.splitlines()[3].startswith("     xid 48: double-bit memory error; needs a reset")
    daemon.change(0, energy_mj=1)
    daemon.offers(0, 1, 2)
    assert 'reason="the gpu was reset"' in daemon.node.log()
    assert daemon.node.log().count('msg="health opened" device=' + first + ' cause="xid 48"') == 1


def test_an_error_that_may_pass_ends_when_it_was_quiet_and_nobody_uses_the_gpu(daemon: Daemon) -> None:
    daemon.change(2, processes=(Process(4711),))
    daemon.xid(2, 74)
    daemon.offers(0, 1)
    daemon.xid(1, 13)
    daemon.wait_for_log('msg="health closed"')  # of the other GPU: as much time has passed for this one
    daemon.offers(0, 1)
    daemon.change(2, processes=())
    daemon.offers(0, 1, 2)
    daemon.wait_for_log("and the gpu is idle and answers")


def test_conditions_are_found_and_end(daemon: Daemon) -> None:
    machine = state.read(daemon.node.library)
    rows, ecc = machine.gpus[0].remapped_rows, machine.gpus[1].ecc
    daemon.change(0, remapped_rows=replace(rows, failed=True))
    daemon.change(1, ecc=replace(ecc, volatile_uncorrected=1))
    daemon.offers(1, 2)
    daemon.wait_for_log("1 new uncorrected memory errors")
    daemon.change(0, remapped_rows=rows)
    daemon.wait_for_log("cause=ecc", times=2)
    daemon.offers(1, 2)


def test_what_is_not_checked_any_more_is_given_away_again_and_still_noted(daemon: Daemon) -> None:
    daemon.xid(0, 48)
    daemon.xid(1, 79)
    daemon.offers(2)
    daemon.kill()
    daemon.start(DP_DISABLE_HEALTHCHECKS="79")
    daemon.offers(1, 2)
    assert 'reason="not checked: DP_DISABLE_HEALTHCHECKS"' in daemon.node.log()
    daemon.xid(1, 79)
    daemon.wait_for_log('cause="xid 79" class=noted')
    daemon.offers(1, 2)


def test_a_verdict_by_hand_wins_and_outlives_a_kill(daemon: Daemon) -> None:
    daemon.xid(0, 79)
    daemon.offers(1, 2)
    said = daemon.health("set", "0", "healthy", "--reason", "tested by hand")
    assert said == f"{daemon.node.uuids[0]} is healthy by hand: tested by hand\n"
    daemon.offers(0, 1, 2)
    daemon.health("set", daemon.node.uuids[2], "unhealthy", "--reason", "smells of smoke")
    daemon.offers(0, 1)
    daemon.xid(0, 79)
    daemon.kill()
    daemon.start()
    daemon.wait_for_log("msg=registered", times=2)
    daemon.offers(0, 1)
    shown = json.loads(daemon.health("show", "--json"))["gpus"]
    assert shown[daemon.node.uuids[2]]["unhealthy"] == "set unhealthy by hand: smells of smoke"
    daemon.health("clear", "2")
    daemon.offers(0, 1, 2)


def test_a_gpu_that_breaks_the_events_leaves_the_others_theirs(daemon: Daemon) -> None:
    state.update(daemon.node.library, lambda machine: machine.with_gpu_lost(0).with_failure("nvmlEventSetWait", 15))
    daemon.offers(1, 2)
    state.update(
        daemon.node.library,
        lambda machine: replace(machine, failures=tuple(failure for failure in machine.failures if failure.gpu == 0)),
    )
    daemon.wait_for_log("cause=lost")
    wait_until(lambda: _hears(daemon), daemon.node.log)
    daemon.offers(2)


def _hears(daemon: Daemon) -> bool:
    """Inject an error until it is received: one may be lost between two sessions."""
    daemon.xid(1, 48)
    return 'cause="xid 48"' in daemon.node.log()


def test_the_last_error_is_on_the_page_of_metrics(daemon: Daemon) -> None:
    path = daemon.node.folder / "node.json"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    path.write_text(json.dumps({**json.loads(path.read_text()), "metricsAddress": address}))
    daemon.kill()
    daemon.start()
    daemon.wait_for_log(f"msg=metrics address={address}")
    daemon.xid(1, 31)
    daemon.wait_for_log('cause="xid 31"')
    daemon.xid(1, 43)
    daemon.wait_for_log('cause="xid 43"')

    def errors() -> list[str]:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as page:
            lines = page.read().decode().splitlines()
        return [line for line in lines if line.startswith("DCGM_FI_DEV_XID_ERRORS{")]

    wait_until(lambda: [line.rpartition(" ")[2] for line in errors()] == ["43"], daemon.node.log)
    assert daemon.node.uuids[1] in errors()[0]
