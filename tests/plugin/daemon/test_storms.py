"""The daemon as a process under clients and signals that mean it no good: it serves, and nothing is left over."""

from __future__ import annotations

import os
import random
import signal
import socket
from typing import TYPE_CHECKING

import pytest

from plugin.admin.client import ask
from tests.plugin.daemon_process import RESOURCE
from tests.plugin.released_node import Node, kubelet, node
from tests.waiting import wait_until

if TYPE_CHECKING:
    from lab.kubelet import Kubelet

__all__ = ["kubelet", "node"]  # fixtures

pytestmark = pytest.mark.functional  # whole daemons, one process a test

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DICE = random.Random(7)
GARBAGE = (
    b"",
    b"\0" * 100,
    b"GET / HTTP/1.1\r\n\r\n",
    b"{",
    b"[" * 4000 + b"\n",
    b"\xff" * 5000,
    PREFACE,
    PREFACE + DICE.randbytes(5),
    PREFACE + DICE.randbytes(70_000),
    b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 100,
    b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 9000,
)


POOL = min(32, (os.cpu_count() or 1) + 4) + 1  # threads that are kept: asyncio's for files, and the history's


def is_as_before(node: Node, before: tuple[int, int]) -> bool:
    """Tell whether nothing is left over: no descriptor, and no thread but those that are kept for the next time."""
    descriptors, threads = before
    return node.descriptors() <= descriptors and node.threads() <= threads + POOL


def free_address() -> tuple[str, int]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return "127.0.0.1", found.getsockname()[1]


def test_a_storm_of_reloads_ends_with_the_last_configuration_and_leaves_nothing(kubelet: Kubelet, node: Node) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        before = node.descriptors(), node.threads()
        for number in range(300):
            other = {"resource": "example.com/gpu"} if number % 2 else {}
            node.configure(refreshSeconds=0.1 + number % 3 / 10, **other)
            node.signal(signal.SIGHUP)
        node.configure()
        node.signal(signal.SIGHUP)
        kubelet.wait_for_devices(RESOURCE, 2)
        wait_until(lambda: kubelet.healthy("example.com/gpu") == [], node.log)
        wait_until(
            lambda: is_as_before(node, before),
            lambda: f"{node.descriptors()}, {node.threads()} of {before}: {node.log()}",
        )
        assert node.stop() == 0
    assert node.lines("never retrieved", "Traceback") == []


def test_clients_that_hold_on_or_talk_nonsense_keep_no_pod_waiting(kubelet: Kubelet, node: Node) -> None:
    address = free_address()
    node.configure(metricsAddress=f"{address[0]}:{address[1]}")
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        node.wait_for_log("msg=metrics")
        before = node.descriptors(), node.threads()
        plugin, admin = kubelet.folder / "grapnel-nvidia.com_gpu.sock", node.node / "run/node.sock"
        held: list[socket.socket] = []
        for number in range(600):
            held.append(connect(DICE.choice((str(plugin), str(admin), address)), DICE.choice(GARBAGE)))
            if number % 100 == 99:
                kubelet.allocate(RESOURCE, 1, "pod")
                kubelet.release("pod")
                for each in held:
                    each.close()
                held.clear()
        wait_until(
            lambda: is_as_before(node, before),
            lambda: f"{node.descriptors()}, {node.threads()} of {before}: {node.log()}",
        )
        status = ask(admin, {"verb": "status"}, 5)
        assert status is not None
        assert status["offered"] == 2
        assert node.stop() == 0
    assert "bug" not in node.log()


def connect(where: str | tuple[str, int], said: bytes) -> socket.socket:
    """Say something, and hold on; who is hung up on has nothing to hold."""
    found = socket.socket(socket.AF_UNIX if isinstance(where, str) else socket.AF_INET)
    try:
        found.connect(where)
        found.settimeout(0.5)
        found.sendall(said)
    except OSError:
        found.close()
    return found


@pytest.mark.parametrize("address", ["in use", "of another machine"])
def test_an_address_for_metrics_that_cannot_be_had_costs_the_metrics_alone(
    kubelet: Kubelet, node: Node, address: str
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        host = "127.0.0.1" if address == "in use" else "192.0.2.1"
        node.configure(metricsAddress=f"{host}:{taken.getsockname()[1]}")
        with node:
            kubelet.wait_for_devices(RESOURCE, 2)
            node.wait_for_log("cannot be served")
            node.configure()
            node.signal(signal.SIGHUP)
            node.wait_for_log("configuration reloaded")
            assert node.stop() == 0
