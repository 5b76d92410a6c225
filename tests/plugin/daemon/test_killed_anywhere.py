"""kill -9 at any moment of anything that happens, and a start afterwards: what was told to anybody is still so."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from lab.kubelet import Kubelet
from lab.nvml import state
from tests.plugin.daemon.test_health_of_daemon import Daemon
from tests.plugin.daemon.test_whole_daemon import Node
from tests.plugin.daemon_process import RESOURCE
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.functional  # whole daemons, killed and started again

MOMENTS_MS = (0, 5, 15, 40, 90, 150)
START_MS = range(0, 320, 40)
GPU = "the second one"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    node = Node(tmp_path, 3)
    for gpu in range(3):  # resets would be evidence; constant counters are not
        state.update(node.library, lambda machine, gpu=gpu: machine.with_gpu(gpu, energy_mj=1000))
    with Kubelet(tmp_path / "kubelet") as kubelet:
        running = Daemon(node, kubelet)
        running.offers(0, 1, 2)
        yield running
        running.close()


def remembered(daemon: Daemon) -> dict[str, list[str]]:
    """Return the causes against each GPU, as `health show` knows them."""
    shown = json.loads(daemon.health("show", "--json"))["gpus"]
    return {uuid: [each["cause"] for each in gpu["findings"]] for uuid, gpu in shown.items()}


def verb(daemon: Daemon, *words: str) -> subprocess.Popen[bytes]:
    command, environment = daemon.node.command(*words), daemon.node.environment()
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def killed_after(daemon: Daemon, delay_ms: float) -> None:
    time.sleep(delay_ms / 1000)
    daemon.kill()


def test_a_start_that_is_cut_off_at_any_moment_costs_nothing(daemon: Daemon) -> None:
    first, second = daemon.node.uuids[:2]
    daemon.xid(0, 48)
    daemon.offers(1, 2)
    daemon.health("set", second, "unhealthy", "--reason", "smells of smoke")
    daemon.offers(2)
    before = remembered(daemon)
    assert before[first] == ["xid 48"]
    for delay_ms in START_MS:
        daemon.kill()
        daemon.start()
        time.sleep(delay_ms / 1000)
    daemon.offers(2)
    assert remembered(daemon) == before
    assert sorted(path.name for path in (daemon.node.folder / "state").glob("*.damaged")) == []


def test_an_error_that_was_told_is_known_after_a_kill(daemon: Daemon) -> None:
    first = daemon.node.uuids[0]
    opened = f'msg="health opened" device={first} cause="xid 48"'
    for delay_ms in MOMENTS_MS:
        daemon.health("set", first, "healthy", "--reason", "test")
        daemon.health("clear", first)
        daemon.offers(0, 1, 2)
        told, registered = daemon.node.log().count(opened), daemon.node.log().count("msg=registered")
        daemon.xid(0, 48)
        killed_after(daemon, delay_ms)
        was_told = daemon.node.log().count(opened) > told
        daemon.start()
        daemon.wait_for_log("msg=registered", registered + 1)
        assert remembered(daemon)[first] == ["xid 48"] or not was_told, daemon.node.log()
    assert told >= 1, "no kill came after the error was told"


def changed_by_hand(daemon: Daemon) -> Callable[[], list[int]]:
    """Return what asks the files which GPUs are to be offered."""

    def wanted() -> list[int]:
        folder = daemon.node.folder / "state"
        if (folder / "released.json").exists():
            return []
        verdicts = folder / "verdicts.json"
        unhealthy = json.loads(verdicts.read_text())["gpus"] if verdicts.exists() else {}
        return [index for index, uuid in enumerate(daemon.node.uuids) if uuid not in unhealthy]

    return wanted


@pytest.mark.parametrize(
    ("there", "back"),
    [
        pytest.param(("release",), ("resume",), id="a release"),
        pytest.param(("health", "set", GPU, "unhealthy", "--reason", "test"), ("health", "clear", GPU), id="a verdict"),
    ],
)
def test_a_daemon_killed_while_a_verb_works_does_what_the_files_say(
    daemon: Daemon, there: tuple[str, ...], back: tuple[str, ...]
) -> None:
    wanted = changed_by_hand(daemon)
    for delay_ms in (0, 60, 120, 180, 240):
        for words in (there, back):
            with verb(daemon, *(daemon.node.uuids[1] if word == GPU else word for word in words)) as running:
                killed_after(daemon, delay_ms)
                running.wait(30)
            daemon.start()
            daemon.offers(*wanted())
    assert wanted() == [0, 1, 2]


def test_a_pod_keeps_its_gpu_and_gets_the_same_answer_after_a_kill(daemon: Daemon) -> None:
    pod = daemon.kubelet.allocate(RESOURCE, 2, "pod")
    for delay_ms in MOMENTS_MS:
        registered = daemon.node.log().count("msg=registered")
        killed_after(daemon, delay_ms)
        daemon.start()
        daemon.wait_for_log("msg=registered", registered + 1)
        daemon.offers(0, 1, 2)
        daemon.kubelet.release("pod")
        assert daemon.kubelet.allocate(RESOURCE, 2, "pod", device_ids=pod.device_ids).response == pod.response


def test_a_reload_that_is_cut_off_is_done_by_the_next_start(daemon: Daemon) -> None:
    path = daemon.node.folder / "node.json"
    names = ["nvidia.com/gpu", "example.com/gpu"]
    for number, delay_ms in enumerate(MOMENTS_MS):
        resource = names[(number + 1) % 2]
        path.write_text(json.dumps({**json.loads(path.read_text()), "resource": resource}))
        daemon.send(signal.SIGHUP)
        killed_after(daemon, delay_ms)
        daemon.start()
        daemon.kubelet.wait_for_devices(resource, 3)
        wait_until(lambda other=names[number % 2]: not daemon.kubelet.healthy(other), daemon.node.log)
