"""How GPUs are set up, against what is declared and what was there before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plugin.changes.driver_change.expectation import FabricPlace
from plugin.changes.driver_change.verification.checks import verify
from plugin.changes.driver_change.verification.model import Found, Wanted
from plugin.driver.gpu_state import COMPLETED, Fabric, GpuState, MigDevice
from plugin.driver.snapshot import Snapshot
from tests.plugin.fakes import gpu, gpus

NEW = "535.309.01"
UUID = gpu(0).uuid
GPU = f"gpu 0 ({UUID})"
BEFORE = GpuState(
    links_active=12, ecc_enabled=True, uncorrected=2, rows_pending=False, rows_failed=False, pages_pending=False
)
HALVES = (MigDevice("3g.20gb", 0, 4), MigDevice("3g.20gb", 4, 4))
CLUSTER, OTHER = "6ba7b812-9dad-11d1-80b4-00c04fd430c8", "5a7b1330-d1b2-5bda-87f4-40b6ecff016d"
JOINED = Fabric(COMPLETED, CLUSTER, 1)
NOT_READY = "the nvlink fabric is not ready ({}): systemctl status nvidia-fabricmanager"


def message(name: str, want: Wanted, now: GpuState) -> tuple[bool, str]:
    """Return the check of a node whose only GPU is so now, without the GPU's name."""
    found = Found(NEW, NEW, Snapshot(NEW, gpus(1)), states={UUID: now})
    check = next(check for check in verify(want, found) if check.name == name)
    return check.ok, check.message.removeprefix(f"{GPU}: ")


def before(state: GpuState) -> Wanted:
    return Wanted(NEW, None, None, before={UUID: state})


NOBODY_KNOWS = Wanted(NEW, None, None)
NOT_COMPARED = (True, "not compared: nothing is declared or remembered")
HINT = "a reload or reboot forgets mig devices: run nvidia-mig-parted, or nvidia-smi mig -cgi … -C, then verify again"


@pytest.mark.parametrize(
    ("want", "now", "expected"),
    [
        pytest.param(NOBODY_KNOWS, HALVES, NOT_COMPARED, id="nobody knows"),
        pytest.param(before(GpuState(mig=HALVES)), HALVES, (True, ""), id="as before"),
        pytest.param(before(GpuState(mig=HALVES)), HALVES[::-1], (True, ""), id="as before in another order"),
        pytest.param(before(BEFORE), None, (True, ""), id="off before and now"),
        pytest.param(
            before(GpuState(mig=HALVES)),
            (),
            (False, f"mig is on, without a device, expected: 3g.20gb at 0:4, 3g.20gb at 4:4; {HINT}"),
            id="a reload forgot the devices",
        ),
        pytest.param(
            before(GpuState(mig=HALVES)),
            None,
            (False, f"mig is off, expected: 3g.20gb at 0:4, 3g.20gb at 4:4; {HINT}"),
            id="mig was switched off",
        ),
        pytest.param(
            before(BEFORE), (), (False, f"mig is on, without a device, expected: mig is off; {HINT}"), id="switched on"
        ),
        pytest.param(
            before(GpuState(mig=HALVES)),
            (HALVES[0], MigDevice("3g.20gb", 8, 4)),
            (False, f"3g.20gb at 0:4, 3g.20gb at 8:4, expected: 3g.20gb at 0:4, 3g.20gb at 4:4; {HINT}"),
            id="another placement",
        ),
        pytest.param(
            before(GpuState(mig=HALVES)),
            (MigDevice("3g.20gb"), MigDevice("3g.20gb")),
            (True, ""),
            id="a driver that tells no placement",
        ),
        pytest.param(
            before(GpuState(mig=HALVES)),
            (*HALVES, MigDevice("1g.5gb", 8, 1)),
            (False, f"3g.20gb at 0:4, 3g.20gb at 4:4, 1g.5gb at 8:1, expected: 3g.20gb at 0:4, 3g.20gb at 4:4; {HINT}"),
            id="one too many",
        ),
        pytest.param(
            replace(before(BEFORE), mig={UUID: (MigDevice("7g.40gb"),)}),
            (MigDevice("7g.40gb", 0, 8),),
            (True, ""),
            id="declared otherwise than before",
        ),
        pytest.param(
            replace(NOBODY_KNOWS, mig={UUID: (MigDevice("1c.1g.5gb"), MigDevice("1g.5gb+me"))}),
            (MigDevice("1g.5gb", 0, 1), MigDevice("1c.1g.5gb+me", 1, 1)),
            (True, ""),
            id="a compute instance of all slices is the whole instance",
        ),
        pytest.param(
            replace(NOBODY_KNOWS, mig={UUID: (MigDevice("1c.3g.20gb"),)}),
            (MigDevice("3g.20gb", 0, 4),),
            (False, f"3g.20gb at 0:4, expected: 1c.3g.20gb; {HINT}"),
            id="a compute instance of one slice of three is not",
        ),
        pytest.param(
            replace(NOBODY_KNOWS, mig={UUID: None}),
            HALVES,
            (False, f"3g.20gb at 0:4, 3g.20gb at 4:4, expected: mig is off; {HINT}"),
            id="declared to be off",
        ),
        pytest.param(
            replace(NOBODY_KNOWS, mig={gpu(5).uuid: ()}),
            None,
            (False, f"{gpu(5).uuid}: is not there to have its mig devices compared; {HINT}"),
            id="declared for a gpu that is not there",
        ),
    ],
)
def test_mig_devices_are_those_that_are_declared_or_were_there(
    want: Wanted, now: tuple[MigDevice, ...] | None, expected: tuple[bool, str]
) -> None:
    assert message("mig", want, GpuState(mig=now)) == expected


@pytest.mark.parametrize(
    ("want", "now", "expected"),
    [
        pytest.param(NOBODY_KNOWS, None, (True, ""), id="a gpu without a fabric"),
        pytest.param(NOBODY_KNOWS, JOINED, (True, ""), id="joined, and nobody knows where it was"),
        pytest.param(
            NOBODY_KNOWS, Fabric("in progress"), (False, NOT_READY.format("in progress")), id="not joined yet"
        ),
        pytest.param(before(GpuState(fabric=JOINED)), JOINED, (True, ""), id="where it was"),
        pytest.param(
            before(GpuState(fabric=JOINED)),
            Fabric("not started"),
            (False, NOT_READY.format("not started")),
            id="not joined any more",
        ),
        pytest.param(
            before(GpuState(fabric=Fabric("not started"))), Fabric("not started"), (True, ""), id="never joined one"
        ),
        pytest.param(
            before(GpuState(fabric=JOINED)),
            None,
            (False, "has no nvlink fabric any more: systemctl status nvidia-fabricmanager"),
            id="no fabric any more",
        ),
        pytest.param(
            before(GpuState(fabric=JOINED)),
            Fabric(COMPLETED, OTHER, 1),
            (False, f"is in fabric {OTHER}.1, expected {CLUSTER}.1"),
            id="another cluster",
        ),
        pytest.param(
            before(GpuState(fabric=JOINED)),
            Fabric(COMPLETED, CLUSTER, 2),
            (False, f"is in fabric {CLUSTER}.2, expected {CLUSTER}.1"),
            id="another clique",
        ),
        pytest.param(
            replace(before(GpuState(fabric=JOINED)), fabric={UUID: FabricPlace(OTHER)}),
            Fabric(COMPLETED, OTHER, 9),
            (True, ""),
            id="moved as declared",
        ),
        pytest.param(
            replace(NOBODY_KNOWS, fabric={UUID: FabricPlace(clique=3)}),
            JOINED,
            (False, f"is in fabric {CLUSTER}.1, expected any cluster.3"),
            id="another clique than declared",
        ),
    ],
)
def test_gpus_join_their_fabric(want: Wanted, now: Fabric | None, expected: tuple[bool, str]) -> None:
    assert message("fabric", want, GpuState(fabric=now)) == expected


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        pytest.param(BEFORE, (True, ""), id="as before"),
        pytest.param(replace(BEFORE, links_active=10), (False, "10 of 12 nvlinks are active"), id="fewer"),
        pytest.param(replace(BEFORE, links_active=18), (True, ""), id="more"),
        pytest.param(replace(BEFORE, links_active=None), (True, ""), id="not told"),
    ],
)
def test_no_nvlink_is_lost(now: GpuState, expected: tuple[bool, str]) -> None:
    assert message("nvlink", before(BEFORE), now) == expected


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        pytest.param(BEFORE, (True, ""), id="as before"),
        pytest.param(
            replace(BEFORE, ecc_enabled=False), (False, "ecc is off, and was not before: nvidia-smi -e 1"), id="ecc off"
        ),
        pytest.param(replace(BEFORE, uncorrected=5), (False, "3 more uncorrected memory errors"), id="errors"),
        pytest.param(
            replace(BEFORE, rows_failed=True, rows_pending=True),
            (False, "a memory row could not be remapped: have the gpu exchanged"),
            id="a row that cannot be remapped",
        ),
        pytest.param(
            replace(BEFORE, rows_pending=True),
            (False, "a row remap waits for a reset: nvidia-smi --gpu-reset"),
            id="a remap that waits",
        ),
        pytest.param(
            replace(BEFORE, pages_pending=True),
            (False, "a page waits to be retired: nvidia-smi --gpu-reset"),
            id="a page that waits",
        ),
        pytest.param(GpuState(), (True, ""), id="a gpu that tells nothing of it"),
    ],
)
def test_memory_is_not_worse(now: GpuState, expected: tuple[bool, str]) -> None:
    assert message("memory", before(BEFORE), now) == expected


def test_what_was_bad_before_is_not_worse() -> None:
    bad = replace(BEFORE, rows_failed=True, rows_pending=True, pages_pending=True, ecc_enabled=False)
    assert message("memory", before(bad), bad) == (True, "")


def test_without_a_memory_of_it_nothing_is_compared() -> None:
    assert message("memory", NOBODY_KNOWS, BEFORE) == NOT_COMPARED
    assert message("nvlink", NOBODY_KNOWS, BEFORE) == NOT_COMPARED
