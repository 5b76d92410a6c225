from __future__ import annotations

from dataclasses import replace

import pytest

from plugin.expectation import Expectation
from plugin.release.record import Release, RememberedGpu
from plugin.snapshot import LostGpu, Snapshot
from plugin.verification import Found, Wanted, result_to_json, verify, wanted
from tests.plugin.fakes import gpu, gpus

NEW, OLD = "535.309.01", "535.261.03"
UUIDS = tuple(each.uuid for each in gpus(2))
WANTED = Wanted(NEW, UUIDS, 2)
FOUND = Found(NEW, NEW, Snapshot(NEW, gpus(2)))


def failed(want: Wanted, found: Found) -> dict[str, str]:
    return {check.name: check.message for check in verify(want, found) if not check.ok}


def test_a_node_as_declared_passes_every_check() -> None:
    result = result_to_json(verify(WANTED, FOUND))
    assert result["ok"] is True
    assert failed(WANTED, FOUND) == {}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(
            replace(FOUND, module_version=OLD),
            {"module-version": f"the loaded kernel module is {OLD}: reload it or reboot"},
            id="the old module is still loaded",
        ),
        pytest.param(
            replace(FOUND, library_version=OLD),
            {"library-version": f"the installed libraries are {OLD}: install the declared version"},
            id="the old library is still installed",
        ),
        pytest.param(
            Found(None, None, None, "nvml does not answer: library not found; install it"),
            {
                "module-version": "kernel module nvidia is not loaded: modprobe nvidia",
                "library-version": "libnvidia-ml.so.1 cannot be loaded: install the driver's user-space libraries",
                "nvml": "nvml does not answer: library not found; install it",
                "gpu-count": "0 of 2 gpus answer",
                "gpus": f"missing: {', '.join(UUIDS)}",
            },
            id="nothing is there",
        ),
        pytest.param(
            replace(FOUND, snapshot=Snapshot(NEW, (gpu(0),), (LostGpu(1, gpu(1).uuid, "gpu is lost"),))),
            {
                "gpu-count": "1 of 2 gpus answer",
                "gpus": f"missing: {gpu(1).uuid}",
                "gpu-answers": f"gpu 1 ({gpu(1).uuid}): gpu is lost",
            },
            id="a gpu does not answer",
        ),
        pytest.param(
            replace(FOUND, snapshot=Snapshot(NEW, (gpu(0), gpu(5)))),
            {"gpus": f"missing: {gpu(1).uuid}; there as well: {gpu(5).uuid}"},
            id="a gpu was exchanged",
        ),
        pytest.param(
            replace(FOUND, snapshot=Snapshot(NEW, gpus(3))), {"gpu-count": "3 of 2 gpus answer"}, id="one too many"
        ),
    ],
)
def test_what_differs_fails_by_name(found: Found, expected: dict[str, str]) -> None:
    assert failed(WANTED, found) == expected


def test_without_anything_to_compare_with_one_gpu_must_answer() -> None:
    nothing_known = Wanted(NEW, None, None)
    assert failed(nothing_known, FOUND) == {}
    assert failed(nothing_known, replace(FOUND, snapshot=Snapshot(NEW, ()))) == {"gpu-count": "no gpu answers"}


def remembered(index: int, unhealthy: str = "") -> RememberedGpu:
    return RememberedGpu(index, gpu(index).uuid, index, gpu(index).pci_address, unhealthy=unhealthy)


@pytest.mark.parametrize(
    ("expectation", "gpus_wanted", "count"),
    [
        pytest.param(Expectation(NEW), (gpu(0).uuid,), None, id="nothing declared: those that were healthy"),
        pytest.param(Expectation(NEW, gpu_count=4), None, 4, id="a count is declared"),
        pytest.param(Expectation(NEW, gpus=UUIDS), UUIDS, None, id="uuids are declared"),
    ],
)
def test_the_declaration_comes_before_the_memory(
    expectation: Expectation, gpus_wanted: tuple[str, ...] | None, count: int | None
) -> None:
    release = Release("2026-09-01T00:00:00Z", gpus=(remembered(0), remembered(1, "gpu is lost")))
    assert wanted(expectation, release) == Wanted(NEW, gpus_wanted, count)


def test_no_memory_means_that_nothing_is_compared() -> None:
    assert wanted(Expectation(NEW), None) == Wanted(NEW, None, None)
    assert wanted(Expectation(NEW), Release("", problem="damaged")) == Wanted(NEW, None, None)
