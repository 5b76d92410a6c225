"""Releases that are cut off at any moment."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from plugin.changes.driver_change.release.record import Release
from plugin.changes.driver_change.release.store import FILE_NAME, forget_release, read_release, write_release
from tests.plugin.daemon_process import RESOURCE
from tests.plugin.released_node import ENVIRONMENT, UUIDS, Node, hang_driver, kubelet, made, node
from tests.waiting import wait_until

if TYPE_CHECKING:
    from lab.kubelet import Kubelet

__all__ = ["kubelet", "node"]  # fixtures


pytestmark = pytest.mark.functional  # whole daemons, one process a test


@pytest.mark.parametrize("change", ["release", "resume"])
def test_a_verb_that_was_killed_after_it_wrote_is_followed_all_the_same(
    kubelet: Kubelet, node: Node, change: str
) -> None:
    release = Release("2026-09-01T10:00:00Z")
    if change == "resume":
        write_release(made(node.state), release)
    with node:
        if change == "resume":
            node.wait_for_log("released since")
            forget_release(node.state)
            kubelet.wait_for_devices(RESOURCE, 2)
        else:
            kubelet.wait_for_devices(RESOURCE, 2)
            write_release(made(node.state), release)
            kubelet.wait_for_devices(RESOURCE, 0)


@pytest.mark.parametrize("verb", ["release", "resume"])
def test_a_verb_killed_at_any_moment_leaves_one_or_the_other(kubelet: Kubelet, node: Node, verb: str) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        for delay_ms in range(0, 200, 20):
            node.verb("resume" if verb == "release" else "release")
            with subprocess.Popen(node.command(verb), env=ENVIRONMENT, stdout=subprocess.DEVNULL) as killed:
                time.sleep(delay_ms / 1000)
                killed.kill()
            release = read_release(node.state)
            assert release is None or (not release.problem and [each.uuid for each in release.gpus] == UUIDS)
            kubelet.wait_for_devices(RESOURCE, 2 if release is None else 0)


def test_a_daemon_that_hangs_is_an_error_and_the_node_released(kubelet: Kubelet, node: Node) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        node.signal(signal.SIGSTOP)
        done = subprocess.run(node.command("release", 1), env=ENVIRONMENT, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "AdminError" in done.stderr
        assert read_release(node.state) is not None
        node.signal(signal.SIGCONT)
        kubelet.wait_for_devices(RESOURCE, 0)


def test_a_daemon_that_is_killed_in_the_middle_starts_released(kubelet: Kubelet, node: Node) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        hang_driver(node)
        pipe = subprocess.PIPE
        with subprocess.Popen(node.command("release", 30), env=ENVIRONMENT, stdout=pipe, text=True) as releasing:
            wait_until((node.state / FILE_NAME).exists, node.log)
            node.wait_for_log("released since")
            node.kill()
            assert releasing.wait(20) == 0
            assert releasing.stdout is not None
            assert "the daemon does not run" in json.loads(releasing.stdout.read())["problems"]
    with node.start():
        node.wait_for_log("msg=registered", times=2)
        assert node.verb("release")["problems"] == []
        assert (kubelet.healthy(RESOURCE), kubelet.capacity(RESOURCE)) == ([], 2)
