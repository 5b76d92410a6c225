"""Times calls of several plugins in turn, so that load and clock meet all alike."""

from __future__ import annotations

import time
from collections.abc import Hashable
from typing import TYPE_CHECKING, TypeVar

from bench.daemons.process import cpu_s
from bench.daemons.subjects import RESOURCE
from bench.stage.figures import in_turn
from lab.kubelet import Kubelet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bench.daemons.subjects import Running, Subject

_Name = TypeVar("_Name", bound=Hashable)
_READY_S = 30.0
WARM_UP = 50


def timed(call: Callable[[], object]) -> Callable[[], float]:
    """Return a function that makes the call and returns its milliseconds."""

    def measure() -> float:
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) * 1000

    return measure


def in_rounds(
    measures: Mapping[_Name, Callable[[], float]], rounds: int, warm_up: int = WARM_UP
) -> dict[_Name, list[float]]:
    """Return what each of them measured, in turn; the first rounds are not counted."""
    taken: dict[_Name, list[float]] = {name: [] for name in measures}
    for number in range(rounds + warm_up):
        for name in in_turn(list(measures), number):
            spent = measures[name]()
            if number >= warm_up:
                taken[name].append(spent)
    return taken


def start_once(subject: Subject, cpu_ms: list[float]) -> float:
    """Return milliseconds from exec to the first list at a kubelet that is there; the plugin is ended again.

    What it took of the processors, which other work on the machine does not change much, goes into `cpu_ms`.
    """
    with Kubelet(subject.kubelet_root) as kubelet:
        start = time.perf_counter()
        process = subject.start()
        try:
            kubelet.wait_for_devices(RESOURCE, subject.gpus, timeout_s=_READY_S)
            taken = (time.perf_counter() - start) * 1000
            cpu_ms.append(cpu_s(process.pid) * 1000)
            return taken
        finally:
            process.terminate()
            process.wait()


def empty(plugin: Running) -> Callable[[], float]:
    """Measure a call that asks for nothing."""
    return timed(plugin.endpoint.options)


def allocate(plugin: Running) -> Callable[[], float]:
    """Measure an allocation of one GPU."""
    return timed(lambda: plugin.endpoint.allocate(plugin.ids[:1]))


def preferred(plugin: Running, size: int) -> Callable[[], float]:
    """Measure the question for so many of all GPUs."""
    return timed(lambda: plugin.endpoint.preferred(plugin.ids, [], size))
