"""What happens to a plugin in its life, and how soon it notices: kubelets that go, GPUs that break, the end."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.daemons.process import memory_of, open_things
from bench.daemons.subjects import RESOURCE
from lab.kubelet.endpoint import Endpoint
from lab.kubelet.registry import Registry
from lab.nvml import state

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.daemons.subjects import Running
    from lab.kubelet import Kubelet
    from lab.nvml.machine import Machine

XID = 79  # the GPU has fallen off the bus: every plugin condemns it
GIVEN_UP_S = 5.0
NEVER_MS = float("inf")


@dataclass(frozen=True)
class Growth:
    """What many rounds left behind: MiB of RSS, and descriptors and threads."""

    mib: float
    things: int

    def __str__(self) -> str:
        return f"{self.mib:+.2f} MiB RSS, {self.things:+} descriptors and threads"


def grow(plugin: Running, work: Callable[[], object], rounds: int, settle_s: float) -> Growth:
    """Do something often; a tenth of the rounds comes before the first look, for what is made once."""
    for _ in range(rounds // 10):
        work()
    time.sleep(settle_s)
    before, things = memory_of(plugin.pid).rss, open_things(plugin.pid)
    for _ in range(rounds):
        work()
    time.sleep(settle_s)
    return Growth(memory_of(plugin.pid).rss - before, open_things(plugin.pid) - things)


def open_stream(plugin: Running) -> Callable[[], object]:
    """Return the work of one stream, opened and ended on a connection that stays."""
    return plugin.endpoint.first_list


def connect(plugin: Running) -> Callable[[], object]:
    """Return the work of one connection with one stream."""

    def work() -> None:
        endpoint = Endpoint(plugin.kubelet.folder, plugin.subject.endpoint)
        endpoint.first_list()
        endpoint.close()

    return work


def restart_kubelet(plugin: Running, *, removes_folder: bool = False) -> float:
    """Return milliseconds from a new kubelet's start to the list; with a folder that was away for a while."""
    plugin.kubelet.stop()
    if removes_folder:
        shutil.rmtree(plugin.kubelet.folder)
        time.sleep(0.3)
    start = time.perf_counter()
    plugin.kubelet.start()
    try:
        plugin.kubelet.wait_for_devices(RESOURCE, plugin.subject.gpus, timeout_s=GIVEN_UP_S)
    except TimeoutError:
        return NEVER_MS
    return (time.perf_counter() - start) * 1000


def break_gpu(plugin: Running, index: int) -> float:
    """Return milliseconds from an XID error to the list in which one GPU less is healthy."""
    return _break(plugin, plugin.kubelet.registry, index)


def break_gpu_after_broken_stream(plugin: Running, index: int) -> float:
    """Return the same where the kubelet's stream broke before, and a new one was opened."""
    kubelet = plugin.kubelet
    if kubelet.is_connected(RESOURCE) and _comes_back(kubelet):
        return _break(plugin, kubelet.registry, index)
    registry, endpoint = Registry(), Endpoint(kubelet.folder, plugin.subject.endpoint)  # it does not come by itself
    registry.register(RESOURCE, plugin.subject.endpoint)
    endpoint.watch(registry, RESOURCE, lambda _resource: None)
    try:
        registry.wait_for(lambda: bool(_healthy(registry)), GIVEN_UP_S)
        return _break(plugin, registry, index)
    finally:
        endpoint.close()


def _comes_back(kubelet: Kubelet) -> bool:
    """Break the stream; return whether the plugin registers again, with all that was healthy."""
    healthy, registrations = len(kubelet.healthy(RESOURCE)), kubelet.registry.registrations
    kubelet.end_stream(RESOURCE)

    def is_back() -> bool:
        return kubelet.registry.registrations > registrations and len(kubelet.healthy(RESOURCE)) == healthy

    return kubelet.registry.wait_for(is_back, GIVEN_UP_S)


def _break(plugin: Running, registry: Registry, index: int) -> float:
    def with_error(machine: Machine) -> Machine:
        return machine.with_xid(index, XID)

    expected = _healthy(registry) - 1
    start = time.perf_counter()
    state.update(plugin.subject.library, with_error)
    has_come = registry.wait_for(lambda: _healthy(registry) == expected, GIVEN_UP_S)
    return (time.perf_counter() - start) * 1000 if has_come else NEVER_MS


def _healthy(registry: Registry) -> int:
    known = registry.get(RESOURCE)
    return len(known.healthy()) if known else 0


def stop(plugin: Running) -> tuple[float, bool]:
    """Return milliseconds from SIGTERM to the end of the process, and whether its list was empty by then."""
    start = time.perf_counter()
    plugin.process.terminate()
    plugin.process.wait()
    taken = (time.perf_counter() - start) * 1000
    registry = plugin.kubelet.registry

    def is_withdrawn() -> bool:
        known = registry.get(RESOURCE)
        return known is not None and not known.devices

    return taken, registry.wait_for(is_withdrawn, 1.0)
