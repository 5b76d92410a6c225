"""Nodes on which something is not there yet, or not any more: said once, waited for, and found by itself."""

from __future__ import annotations

from ctypes.util import find_library
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lab.kubelet import Kubelet
from lab.nvml import models, state
from lab.nvml.machine import Check, Link
from tests.plugin.daemon.test_health_of_daemon import Daemon
from tests.plugin.daemon.test_whole_daemon import Node, linked, load_module
from tests.plugin.daemon_process import RESOURCE
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.functional  # whole daemons, one process a test

OWN_LIBRARY = pytest.mark.skipif(
    find_library("nvidia-ml") is not None, reason="this machine has a libnvidia-ml of its own"
)


class Absent:
    """Takes one thing away from a node; `back` is the same backwards."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.machine = node.machine

    def library(self) -> None:
        for path in self.node.library.parent.iterdir():
            path.rename(path.with_name(f"away-{path.name}"))

    def library_back(self) -> None:
        for path in sorted(self.node.library.parent.iterdir()):
            path.rename(path.with_name(path.name.removeprefix("away-")))

    def module(self) -> None:
        (self.node.folder / "sys/module").mkdir(parents=True)
        state.write(
            self.node.library, replace(self.machine, module=Check.CHECK, sys_root=str(self.node.folder / "sys"))
        )

    def module_back(self) -> None:
        load_module(self.node, "550.163.01")

    def same_version(self) -> None:
        self.module()
        load_module(self.node, "535.309.01")

    def gpus(self) -> None:
        state.write(self.node.library, models.machine("a100-40gb", 0))

    def gpus_back(self) -> None:
        state.write(self.node.library, self.machine)


CASES = [
    pytest.param(
        Absent.library, Absent.library_back, "nvml shared library not found", id="no library", marks=OWN_LIBRARY
    ),
    pytest.param(Absent.module, Absent.module_back, "driver not loaded", id="a library without its module"),
    pytest.param(Absent.same_version, Absent.module_back, "nvml/rm version mismatch", id="module and library differ"),
    pytest.param(Absent.gpus, Absent.gpus_back, "nvml lists no gpu", id="no gpu"),
]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, 2)


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    with Kubelet(tmp_path / "kubelet", has_pod_resources=True) as stand_in:
        yield stand_in


@pytest.mark.parametrize(("go", "come", "said"), CASES)
def test_what_comes_later_is_said_once_waited_for_and_found(
    node: Node, kubelet: Kubelet, go: Callable[[Absent], None], come: Callable[[Absent], None], said: str
) -> None:
    absent = Absent(node)
    go(absent)
    daemon = Daemon(node, kubelet)
    try:
        daemon.wait_for_log(said)
        looked_at = looks(daemon)
        wait_until(lambda: looks(daemon) >= looked_at + 20, node.log)
        assert node.log().count(said) == 1
        assert kubelet.capacity(RESOURCE) == 0
        come(absent)
        daemon.offers(0, 1)
    finally:
        daemon.close()
    assert node.log().count(said) == 1


def looks(daemon: Daemon) -> int:
    """Return how often any thread of the daemon has woken up so far."""
    return sum(
        int(line.split()[1])
        for status in daemon.tasks()
        for line in status.splitlines()
        if line.startswith("voluntary_ctxt")
    )


def test_a_driver_that_goes_takes_its_gpus_along_and_brings_them_back(node: Node, kubelet: Kubelet) -> None:
    absent = Absent(node)
    absent.module()
    absent.module_back()
    daemon = Daemon(node, kubelet)
    try:
        daemon.offers(0, 1)
        failing = node.machine.with_failure("*", 9)
        for _ in range(2):
            state.write(node.library, failing)
            wait_until(lambda: kubelet.healthy(RESOURCE) == [], node.log)
            assert kubelet.capacity(RESOURCE) == 2
            state.write(node.library, node.machine)
            daemon.offers(0, 1)
    finally:
        daemon.close()
    assert node.log().count('msg="nvml does not answer: driver not loaded"') == 2


def test_gpus_that_are_initialised_one_after_the_other_are_offered_as_they_come(node: Node, kubelet: Kubelet) -> None:
    state.update(node.library, lambda machine: machine.with_gpu_lost(1))
    daemon = Daemon(node, kubelet)
    try:
        daemon.offers(0)
        state.update(node.library, lambda machine: replace(machine, failures=()))
        daemon.offers(0, 1)
    finally:
        daemon.close()


def test_a_gpu_is_unplugged_plugged_in_again_and_exchanged(node: Node, kubelet: Kubelet) -> None:
    daemon = Daemon(node, kubelet)
    first, second = node.machine.gpus
    try:
        daemon.offers(0, 1)
        state.write(node.library, replace(node.machine, gpus=(first,)))
        daemon.offers(0)
        assert kubelet.capacity(RESOURCE) == 2
        state.write(node.library, node.machine)
        daemon.offers(0, 1)
        new = replace(second, uuid="GPU-11111111-2222-3333-4444-555555555555")
        state.write(node.library, replace(node.machine, gpus=(first, new)))
        wait_until(lambda: sorted(kubelet.healthy(RESOURCE)) == sorted((first.uuid, new.uuid)), node.log)
        assert kubelet.capacity(RESOURCE) == 2
    finally:
        daemon.close()


def test_a_pod_is_not_given_gpus_whose_link_went_down(tmp_path: Path) -> None:
    """The topology was of the moment when the GPUs were seen first: a link that went down still counted."""
    node = Node(tmp_path, 4)
    state.update(node.library, lambda machine: linked(machine, (0, 3), (1, 2)))
    with Kubelet(tmp_path / "kubelet") as kubelet:
        daemon = Daemon(node, kubelet)
        try:
            daemon.offers(0, 1, 2, 3)
            for gpu in (0, 3):
                down = tuple(
                    Link(active=False, remote_pci=link.remote_pci) for link in state.read(node.library).gpus[gpu].links
                )
                daemon.change(gpu, links=down)
                daemon.health("set", str(gpu), "healthy", "--reason", "its links do not matter")
            daemon.offers(0, 1, 2, 3)
            chosen = kubelet.allocate(RESOURCE, 2, "pod").device_ids
        finally:
            daemon.close()
    assert sorted(map(node.uuids.index, chosen)) == [1, 2]


def test_a_recovery_that_the_driver_asks_for_is_shown_with_what_to_do(node: Node, kubelet: Kubelet) -> None:
    daemon = Daemon(node, kubelet)
    try:
        daemon.offers(0, 1)
        daemon.change(1, recovery_action=4)
        daemon.xid(1, 154)
        daemon.offers(0)
        shown = daemon.health("show")
        assert "recovery action: the driver asks for a drain and a reset" in shown
        daemon.change(1, recovery_action=0)
        daemon.offers(0, 1)
    finally:
        daemon.close()
