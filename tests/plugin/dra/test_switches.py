"""A real daemon changes between the interfaces again and again, under pods and claims that come and go, and is killed.

Four GPUs, and never two owners of one: an owner is a pod from the answer to Allocate until it ends, and a claim from
the answer to NodePrepareResources until the kubelet gives it back. Two claims of each GPU are allocated, as by a
scheduler that goes by old slices.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import grpc
import pytest

from lab.kubelet import AllocationRefused, Container, Kubelet, Pod
from lab.kubelet.claims import DraKubelet, create_allocated, published
from plugin.admin.client import ask
from tests.plugin.daemon_process import RESOURCE, DaemonProcess
from tests.plugin.fakes import gpu
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lab.cluster import ControlPlane

pytestmark = pytest.mark.functional  # a daemon, and an API server

GPUS = 4
UUIDS = [gpu(index).uuid for index in range(GPUS)]
DEVICES = [f"gpu-{uuid.removeprefix('GPU-')}" for uuid in UUIDS]
INTERFACES = ("devicePlugin", "dra")
SEED = 118
_KILLS = 0.05  # of the changes: the daemon is killed in the middle of one
_OF_PODS_S, _OF_CLAIMS_S = 0.1, 0.02  # between two steps: claims wait for one another, pods are refused at once
_AWAY = (grpc.RpcError, grpc.FutureTimeoutError, ValueError, RuntimeError)  # nobody serves claims, or not any more


class Owners:
    """Who has which GPU by now, as the kubelet knows it. Of several threads."""

    def __init__(self) -> None:
        self._by_gpu: dict[str, str] = {}
        self._lock = threading.Lock()
        self.twice: list[str] = []
        self.counts: Counter[str] = Counter()

    def given(self, kind: str, owner: str, uuids: list[str]) -> None:
        """Note what an owner was given; somebody else who still has it is what must not be."""
        with self._lock:
            self.counts[kind] += 1
            for uuid in uuids:
                before = self._by_gpu.setdefault(uuid, owner)
                if before != owner:
                    self.twice.append(f"{uuid}: {before} had it when {owner} was given it")

    def ended(self, owner: str) -> None:
        """Note that an owner uses nothing any more; call it before anybody is told."""
        with self._lock:
            self._by_gpu = {uuid: who for uuid, who in self._by_gpu.items() if who != owner}

    def refused(self, kind: str) -> None:
        """Count a call that gave nothing."""
        with self._lock:
            self.counts[f"{kind} refused"] += 1


class SwitchedNode:
    """A daemon, its kubelet, and who asks for GPUs."""

    def __init__(self, control_plane: ControlPlane, node: str, folder: Path, kubelet: Kubelet) -> None:
        self.control_plane, self.node, self.kubelet = control_plane, node, kubelet
        self.daemon = DaemonProcess(folder, GPUS)
        self.daemon.kubelet_root = kubelet.folder.parent
        self.claims = DraKubelet(kubelet.folder.parent)
        self.owners = Owners()
        self._kubeconfig = folder / "kubelet.conf"
        self._kubeconfig.write_text(control_plane.render_kubeconfig(control_plane.certificates.prepare_node(node)))
        self._connected: Path | None = None
        self._connecting = threading.Lock()
        self.interface = INTERFACES[0]
        self.declare(self.interface)

    def declare(self, interface: str) -> None:
        """Write it into the daemon's configuration."""
        self.interface = interface
        self.daemon.configure(
            interface=interface,
            kubernetesApi=str(self._kubeconfig),
            nodeName=self.node,
            cdiFolder=str(self.daemon.node / "cdi"),
        )

    def restart(self) -> None:
        """Kill the daemon, and start another one."""
        self.daemon.kill()
        self.daemon.start()

    def is_changed(self) -> bool:
        """Whether pods can be given the GPUs as it is declared."""
        answer = ask(self.daemon.node / "run/node.sock", {"verb": "look", "timeout_s": 0.5}, 30.0) or {}
        return answer.get("interface") == self.interface and answer.get("waits") == []

    def take_driver(self) -> None:
        """Take the driver of claims where its socket is a new one, as a kubelet does that watches the folder."""
        with self._connecting, suppress(*_AWAY):
            found = self.claims.sockets
            if len(found) == 1 and found[0] != self._connected:
                self.claims.hang_up()
                self.claims.connect()
                self.claims.take()
                self._connected = found[0]

    def offered(self) -> list[str]:
        """Return the UUIDs of what is given away, by the interface that is declared."""
        if self.interface == "devicePlugin":
            return self.kubelet.healthy(RESOURCE)
        self.take_driver()
        slices = published(self.control_plane, self.node)
        names = [row["name"] for each in slices for row in each["spec"].get("devices", [])]
        return [uuid for name, uuid in zip(DEVICES, UUIDS, strict=True) if name in names]


class Pods:
    """Pods that ask the device plugin for one GPU or two, and end after a while."""

    def __init__(self, on: SwitchedNode, seed: int) -> None:
        self._on = on
        self._chance = random.Random(seed)
        self._running: list[Pod] = []
        self._made = 0

    def step(self) -> None:
        """Let one come, or one end."""
        if self._running and self._chance.random() < 0.5:
            self._end(self._running.pop(self._chance.randrange(len(self._running))))
            return
        self._made += 1
        pod = Pod(f"pod-{self._made}", (Container("main", self._chance.choice((1, 1, 2))),))
        manager = self._on.kubelet.device_manager
        try:
            self._on.kubelet.admit(pod)
        except AllocationRefused:
            self._on.owners.refused("pod")
            manager.remove(pod)
            return
        self._on.owners.given("pod", pod.name, sorted(manager.given[pod.key, "main", RESOURCE]))
        self._running.append(pod)

    def close(self) -> None:
        """End them all."""
        while self._running:
            self._end(self._running.pop())

    def _end(self, pod: Pod) -> None:
        self._on.owners.ended(pod.name)
        self._on.kubelet.device_manager.remove(pod)


class Claims:
    """Claims, one of each GPU, that are prepared and given back in any order; who is not answered asks again."""

    def __init__(self, on: SwitchedNode, seed: int) -> None:
        self._on = on
        self._chance = random.Random(seed)
        names = [f"{number}-of-{seed}" for number in range(GPUS)]
        self._uids = {
            name: create_allocated(on.control_plane, on.node, name, [device])
            for name, device in zip(names, DEVICES, strict=True)
        }
        self._asked: set[str] = set()  # the kubelet gives back what it ever asked for

    def step(self) -> None:
        """Have one prepared, or given back."""
        self._on.take_driver()
        name = self._chance.choice(list(self._uids))
        if name in self._asked and self._chance.random() < 0.5:
            self._give_back(name)
            return
        self._asked.add(name)
        try:
            answer = self._on.claims.prepare(name, self._uids[name])
        except _AWAY:
            self._on.owners.refused("claim")
            return
        if answer.error:
            self._on.owners.refused("claim")
            return
        found = [UUIDS[DEVICES.index(each.device_name)] for each in answer.devices]
        self._on.owners.given("claim", name, found)

    def close(self) -> None:
        """Give all of them back."""
        for name in list(self._asked):
            wait_until(partial(self._is_given_back, name), self._on.daemon.log)

    def _is_given_back(self, name: str) -> bool:
        self._on.take_driver()
        self._give_back(name)
        return name not in self._asked or not self._on.claims.sockets  # without a driver there is no claim

    def _give_back(self, name: str) -> None:
        self._on.owners.ended(name)
        with suppress(*_AWAY):
            if not self._on.claims.unprepare(name, self._uids[name]):
                self._asked.discard(name)


@contextmanager
def going_on(step: Callable[[], None], pause_s: float, faults: list[BaseException]) -> Iterator[None]:
    """Take one step after the other meanwhile; what goes wrong ends it."""
    is_over = threading.Event()

    def run() -> None:
        try:
            while not is_over.wait(pause_s):
                step()
        except BaseException as error:
            faults.append(error)
            raise

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@pytest.fixture
def switched(control_plane: ControlPlane, node: str, tmp_path: Path) -> Iterator[SwitchedNode]:
    with Kubelet(tmp_path / "kubelet-root", has_pod_resources=True) as kubelet:
        made = SwitchedNode(control_plane, node, tmp_path, kubelet)
        with made.daemon:
            yield made
        made.claims.hang_up()
        control_plane.kubectl(["delete", "pods,resourceclaims", "--all", "--force", "--wait=false"])


@pytest.mark.parametrize(
    "changes", [20, pytest.param(1000, marks=[pytest.mark.long, pytest.mark.timeout(7200)])], ids="{} changes".format
)
def test_no_gpu_has_two_owners_however_often_a_daemon_changes_over(switched: SwitchedNode, changes: int) -> None:
    chance, faults, owners = random.Random(SEED), list[BaseException](), switched.owners
    pods, claims = Pods(switched, SEED + 1), [Claims(switched, SEED + number) for number in (2, 3)]
    with ExitStack() as load:
        load.enter_context(going_on(pods.step, _OF_PODS_S, faults))
        for each in claims:
            load.enter_context(going_on(each.step, _OF_CLAIMS_S, faults))
        for number in range(changes):
            switched.declare(INTERFACES[(number + 1) % 2])
            switched.daemon.signal(signal.SIGHUP)
            if chance.random() < _KILLS or number == 1:
                time.sleep(chance.random() * 0.3)  # into the change, or right after it
                switched.restart()
                owners.counts["kill"] += 1
            wait_until(lambda: bool(faults or owners.twice) or switched.is_changed(), switched.daemon.log)
            assert (owners.twice, faults) == ([], []), switched.daemon.log()
            time.sleep(chance.random() * 0.3)
    assert owners.twice == []
    assert set(owners.counts) == {"pod", "claim", "pod refused", "claim refused", "kill"}, owners.counts
    _expect_all_free(switched, pods, *claims)


def _expect_all_free(switched: SwitchedNode, *load: Pods | Claims) -> None:
    """Whatever happened: once nobody has anything, all GPUs are given away, by either interface."""
    for each in load:
        each.close()
    for interface in reversed(INTERFACES):
        switched.declare(interface)
        switched.daemon.signal(signal.SIGHUP)
        wait_until(lambda: switched.offered() == UUIDS, switched.daemon.log)
