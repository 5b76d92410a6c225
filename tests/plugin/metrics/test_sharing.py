"""What containers use of a GPU, and whose the processes on it are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.driver.telemetry import GpuInstance, GpuProcess, GpuTelemetry
from plugin.kubelet.pod_resources.attribution import OUTSIDE, PodContainer
from plugin.publication.metrics.sharing import OwnerUsage, Share, listed_pids, shares, usages

ONE, TWO, THREE = (PodContainer("default", name, "main") for name in ("a", "b", "c"))
ONE_OR_OTHER = PodContainer("default", "a", "")


def gpu(*processes: GpuProcess, utilization: int | None = 50) -> GpuTelemetry:
    return GpuTelemetry("GPU-0", gpu_utilization_percent=utilization, processes=processes)


BOTH = gpu(GpuProcess(1, 100, 30), GpuProcess(2, 10, 5), GpuProcess(3, 1, 0))


@pytest.mark.parametrize(
    ("measured", "owners", "expected"),
    [
        pytest.param(
            BOTH,
            {1: ONE, 2: TWO, 3: ONE},
            (Share(ONE, 2, 101, 30), Share(TWO, 1, 10, 5)),
            id="each its own, added up",
        ),
        pytest.param(
            BOTH,
            {1: ONE, 2: OUTSIDE, 3: OUTSIDE},
            (Share(ONE, 1, 100, 30), Share(TWO, 0, 0, 0)),
            id="one without a process uses nothing",
        ),
        pytest.param(
            BOTH,
            {1: ONE, 3: OUTSIDE},
            (Share(ONE, 1, 100, 30), Share(TWO, 0, None, None)),
            id="one without a process may be the owner that is not known",
        ),
        pytest.param(
            BOTH,
            {1: ONE, 2: ONE_OR_OTHER, 3: OUTSIDE},
            (Share(ONE_OR_OTHER, 1, 10, 5), Share(ONE, 1, 100, 30), Share(TWO, 0, None, None)),
            id="a container that is not known is not given to one that is",
        ),
        pytest.param(
            BOTH,
            {1: ONE, 2: TWO, 3: THREE},
            (Share(ONE, 1, 100, 30), Share(TWO, 1, 10, 5), Share(THREE, 1, 1, 0)),
            id="one that was not given the GPU is there too",
        ),
        pytest.param(
            gpu(GpuProcess(1, None, 30), GpuProcess(2, 10, None)),
            {1: ONE, 2: TWO},
            (Share(ONE, 1, None, 30), Share(TWO, 1, 10, None)),
            id="what the driver does not say is not known",
        ),
        pytest.param(
            gpu(GpuProcess(1, 5, None), utilization=None),
            {1: ONE},
            (Share(ONE, 1, 5, None), Share(TWO, 0, 0, None)),
            id="an instance of MIG has no utilisation, for the idle either",
        ),
        pytest.param(GpuTelemetry("GPU-0"), {1: ONE}, (), id="a driver that does not list processes"),
    ],
)
def test_shares(measured: GpuTelemetry, owners: dict[int, PodContainer], expected: tuple[Share, ...]) -> None:
    assert shares(measured, (ONE, TWO), owners) == expected


def test_processes_are_counted_by_owner() -> None:
    measured = gpu(*BOTH.processes or (), GpuProcess(4, None, 0))
    assert usages(measured, {1: ONE, 2: OUTSIDE, 3: ONE}) == (
        OwnerUsage("pod", 2, 101),
        OwnerUsage("host", 1, 10),
        OwnerUsage("unknown", 1, None),
    )
    assert usages(GpuTelemetry("GPU-0"), {}) == ()


def test_a_process_on_several_gpus_is_held_against_the_first_list() -> None:
    second = GpuTelemetry("GPU-1", processes=(GpuProcess(1, 1, 0), GpuProcess(2, 1, 0)), asked_at_s=2.0)
    cut = GpuTelemetry("GPU-2", instances=(GpuInstance(1, "", ("MIG-1",), gpu(GpuProcess(9, 1, 0))),), asked_at_s=3.0)
    first = GpuTelemetry("GPU-0", processes=(GpuProcess(1, 1, 0),), asked_at_s=1.0)
    assert listed_pids([second, first, cut]) == {1: 1.0, 2: 2.0, 9: 3.0}


PROCESSES = st.lists(
    st.builds(GpuProcess, st.integers(1, 9), st.one_of(st.none(), st.integers(0, 2**40)), st.integers(0, 100)),
    max_size=8,
    unique_by=lambda process: process.pid,
)
OWNERS = st.dictionaries(st.integers(1, 9), st.sampled_from([ONE, TWO, THREE, ONE_OR_OTHER, OUTSIDE]))


@given(PROCESSES, OWNERS, st.sets(st.sampled_from([ONE, TWO])))
def test_nothing_is_told_twice_and_nobody_is_given_what_is_not_known_to_be_theirs(
    processes: list[GpuProcess], owners: dict[int, PodContainer], holders: set[PodContainer]
) -> None:
    measured = gpu(*processes)
    found = {share.holder: share for share in shares(measured, holders, owners)}
    assert holders <= set(found)
    for holder, share in found.items():
        own = [process for process in processes if owners.get(process.pid) == holder]
        assert share.processes == len(own)
        known = [process.memory_used_bytes for process in own if process.memory_used_bytes is not None]
        assert share.memory_used_bytes is None or share.memory_used_bytes == sum(known)
        assert share.memory_used_bytes is not None or not own or len(known) < len(own)
    told = sum(crowd.processes for crowd in usages(measured, owners))
    assert told == len(processes)
