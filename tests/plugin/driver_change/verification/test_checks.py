from __future__ import annotations

from dataclasses import replace

import pytest

from plugin.changes.driver_change.expectation import Expectation
from plugin.changes.driver_change.release.record import Release, RememberedGpu
from plugin.changes.driver_change.verification.checks import verify
from plugin.changes.driver_change.verification.model import Found, NewXid, Trial, Wanted, result_to_json, wanted
from plugin.driver.snapshot import LostGpu, Snapshot
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
    want = wanted(expectation, release)
    assert (want.driver_version, want.gpus, want.gpu_count) == (NEW, gpus_wanted, count)


@pytest.mark.parametrize(
    ("declared", "excused"),
    [
        pytest.param(None, {gpu(1).uuid}, id="it was unhealthy at the release"),
        pytest.param(UUIDS, set(), id="it is declared to be there"),
    ],
)
def test_a_gpu_that_was_bad_before_is_excused_unless_it_is_declared(
    declared: tuple[str, ...] | None, excused: set[str]
) -> None:
    release = Release("2026-09-01T00:00:00Z", gpus=(remembered(0), remembered(1, "gpu is lost")))
    assert wanted(Expectation(NEW, gpus=declared), release).excused == excused


def test_no_memory_means_that_nothing_is_compared() -> None:
    assert wanted(Expectation(NEW), None) == Wanted(NEW, None, None)
    assert wanted(Expectation(NEW), Release("", problem="damaged")) == Wanted(NEW, None, None)


GPU = tuple(f"gpu {index} ({uuid})" for index, uuid in enumerate(UUIDS))
BUS = NewXid(UUIDS[1], 79, "the gpu has fallen off the bus", condemns=True)
FAULT = NewXid(UUIDS[0], 31, "memory page fault", condemns=False)


def message(name: str, want: Wanted, found: Found) -> tuple[bool, str]:
    return next((check.ok, check.message) for check in verify(want, found) if check.name == name)


@pytest.mark.parametrize(
    ("found", "want", "expected"),
    [
        pytest.param(FOUND, WANTED, (True, ""), id="none"),
        pytest.param(
            replace(FOUND, xids=(BUS, FAULT)),
            WANTED,
            (
                False,
                f"{GPU[1]}: xid 79, the gpu has fallen off the bus; harmless: {GPU[0]}: xid 31, memory page fault",
            ),
            id="one that condemns and one that does not",
        ),
        pytest.param(
            replace(FOUND, xids=(FAULT,)),
            WANTED,
            (True, f"harmless: {GPU[0]}: xid 31, memory page fault"),
            id="harmless",
        ),
        pytest.param(
            replace(FOUND, xids=(replace(BUS, device="0000:99:00.0"),)),
            WANTED,
            (False, "0000:99:00.0: xid 79, the gpu has fallen off the bus"),
            id="of a gpu that does not answer any more",
        ),
        pytest.param(
            replace(FOUND, xids=(BUS,)),
            replace(WANTED, excused=frozenset({UUIDS[1]})),
            (True, f"was unhealthy before: {GPU[1]}: xid 79, the gpu has fallen off the bus"),
            id="of a gpu that was unhealthy before",
        ),
        pytest.param(replace(FOUND, deaf="nobody listened"), WANTED, (True, "nobody listened"), id="not known"),
    ],
)
def test_new_xid_errors_fail_by_their_class(found: Found, want: Wanted, expected: tuple[bool, str]) -> None:
    assert message("xids", want, found) == expected


MIG = "MIG-5a7b1330-d1b2-5bda-87f4-40b6ecff016d"
MISSING = "libcuda.so.1 is not installed: "


@pytest.mark.parametrize(
    ("found", "want", "expected"),
    [
        pytest.param(replace(FOUND, trials=(Trial(UUIDS[0], UUIDS[0]),)), WANTED, (True, ""), id="it works"),
        pytest.param(
            replace(FOUND, trials=(Trial(UUIDS[0], UUIDS[0]), Trial(UUIDS[1], UUIDS[1], "hangs"))),
            WANTED,
            (False, f"{GPU[1]}: hangs"),
            id="one gpu hangs",
        ),
        pytest.param(
            replace(FOUND, trials=(Trial(UUIDS[0], MIG, "hangs"),)),
            WANTED,
            (False, f"{GPU[0]}: {MIG}: hangs"),
            id="a mig device hangs",
        ),
        pytest.param(
            replace(FOUND, has_libcuda=False),
            WANTED,
            (True, f"not tried: {MISSING}cuda programs cannot run on this node"),
            id="a node without compute libraries",
        ),
        pytest.param(
            replace(FOUND, has_libcuda=False),
            replace(WANTED, had_libcuda=True),
            (False, f"{MISSING}install the driver's compute libraries"),
            id="compute libraries that were there before",
        ),
        pytest.param(
            replace(FOUND, has_libcuda=False),
            replace(WANTED, allocation=True),
            (False, f"{MISSING}install the driver's compute libraries"),
            id="compute libraries that are declared",
        ),
        pytest.param(
            replace(FOUND, untried="not tried: the expectation says so"),
            replace(WANTED, allocation=False),
            (True, "not tried: the expectation says so"),
            id="not wanted",
        ),
    ],
)
def test_memory_must_be_usable_on_every_gpu(found: Found, want: Wanted, expected: tuple[bool, str]) -> None:
    assert message("allocation", want, found) == expected


def test_a_gpu_that_does_not_tell_its_state_is_half_lost() -> None:
    found = replace(FOUND, silent={UUIDS[1]: "unknown error"})
    assert failed(WANTED, found) == {"gpu-answers": f"{GPU[1]}: does not tell its state: unknown error"}
