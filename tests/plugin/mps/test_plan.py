from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from plugin.sharing.mps.plan import SharedGpu, plan_daemons
from tests.plugin.fakes import gpu

ROOT = Path("/run/grapnel/mps")
H100 = SharedGpu(gpu(0).uuid, 0, 81559 * 2**20, 4, "9.0")


def why_not(shared: SharedGpu, root: Path = ROOT) -> str:
    plan = plan_daemons([shared], root)
    assert bool(plan.daemons) != bool(plan.refusals)
    return dict(plan.refusals).get(shared.uuid, "").removeprefix("cannot be shared through MPS: ")


@pytest.mark.parametrize(
    ("memory_mib", "replicas", "each_mib", "percentage"),
    [
        pytest.param(81920, 2, 40960, 50, id="halves"),
        pytest.param(81559, 4, 20389, 25, id="memory is rounded down to a MiB"),
        pytest.param(15109, 3, 5036, 34, id="threads are rounded up"),
        pytest.param(81559, 7, 11651, 15, id="a seventh is no seventh percent less"),
        pytest.param(81559, 34, 2398, 3, id="34 shares reach the whole gpu"),
        pytest.param(81559, 48, 1699, 3, id="as many as there may be"),
    ],
)
def test_shares_have_equal_ceilings_that_fit(memory_mib: int, replicas: int, each_mib: int, percentage: int) -> None:
    (daemon,) = plan_daemons([replace(H100, memory_bytes=memory_mib * 2**20, replicas=replicas)], ROOT).daemons
    assert (daemon.memory_mib, daemon.thread_percentage) == (each_mib, percentage)


@pytest.mark.parametrize("replicas", range(1, 49))
def test_no_memory_is_given_twice_and_no_thread_to_nobody(replicas: int) -> None:
    (daemon,) = plan_daemons([replace(H100, replicas=replicas)], ROOT).daemons
    assert 0 <= 81559 - daemon.memory_mib * replicas < replicas
    assert daemon.thread_percentage * replicas >= 100


@pytest.mark.parametrize(
    ("shared", "words"),
    [
        pytest.param(replace(H100, is_cut=True), "it is in MIG mode", id="MIG"),
        pytest.param(replace(H100, replicas=49), "49 replicas, and a gpu of compute capability 9.0", id="too many"),
        pytest.param(replace(H100, replicas=48), "", id="just enough"),
        pytest.param(replace(H100, replicas=48, compute_capability="7.0"), "", id="Volta itself"),
        pytest.param(
            replace(H100, replicas=17, compute_capability="6.1"), "has room for 16 clients", id="too many before Volta"
        ),
        pytest.param(replace(H100, replicas=16, compute_capability="6.1"), "", id="just enough before Volta"),
        pytest.param(replace(H100, replicas=17, compute_capability=""), "a gpu of unknown kind", id="unknown kind"),
        pytest.param(replace(H100, compute_capability="3.0"), "MPS needs 3.5", id="too old"),
        pytest.param(replace(H100, memory_bytes=None), "the driver does not say how much memory", id="no memory told"),
        pytest.param(replace(H100, memory_bytes=2**29, replicas=40), "40 replicas leave 12 MiB", id="no memory left"),
        pytest.param(replace(H100, uuid="GPU-../../etc"), "its uuid is not that of a gpu", id="no uuid"),
    ],
)
def test_a_gpu_that_cannot_be_shared_is_refused_with_the_reason(shared: SharedGpu, words: str) -> None:
    why = why_not(shared)
    assert words in why
    assert bool(words) == bool(why)


@pytest.mark.parametrize(
    ("root", "words"),
    [
        pytest.param(Path("/run/nvidia/mps"), "", id="as NVIDIA's chart has it"),
        pytest.param(Path("/" + "r" * 50), "is too long for a socket", id="too long for a socket"),
        pytest.param(Path("/run/my mps"), "choose another mpsRoot", id="a space"),
        pytest.param(Path("/run/a:b"), "choose another mpsRoot", id="a colon, which mounts are split at"),
        pytest.param(Path("mps"), "choose another mpsRoot", id="not absolute"),
    ],
)
def test_a_root_that_cannot_be_used_refuses_its_gpus(root: Path, words: str) -> None:
    assert words in (why := why_not(H100, root))
    assert bool(words) == bool(why)


def test_a_driver_in_a_container_shares_nothing() -> None:
    plan = plan_daemons([H100], ROOT, Path("/run/nvidia/driver"))
    assert not plan.daemons
    assert "the driver is installed in /run/nvidia/driver, not in /" in dict(plan.refusals)[H100.uuid]


def test_one_gpu_that_is_refused_keeps_no_other_from_it() -> None:
    other = replace(H100, uuid=gpu(1).uuid, index=1, is_cut=True)
    plan = plan_daemons([other, H100], ROOT)
    assert [daemon.uuid for daemon in plan.daemons] == [H100.uuid]
    assert [uuid for uuid, _ in plan.refusals] == [other.uuid]


def test_daemons_share_no_folder_and_no_unit() -> None:
    gpus = [replace(H100, uuid=gpu(index).uuid, index=index) for index in range(8)]
    daemons = plan_daemons(gpus, ROOT).daemons
    assert [daemon.uuid for daemon in daemons] == [gpu.uuid for gpu in gpus]
    assert len({daemon.pipe for daemon in daemons}) == len({daemon.unit for daemon in daemons}) == 8
    assert daemons[0].unit == f"grapnel-mps-{H100.uuid}.service"
