"""MIG through the simulated NVML: profiles, places, what is in use, and what a reload of the module forgets."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lab.nvml import capabilities, install, models, state
from lab.nvml.machine import Process
from tests.lab.nvml.client import Client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

IN_USE, INSUFFICIENT_RESOURCES, INVALID_ARGUMENT, NOT_FOUND = 19, 23, 2, 6
PROFILES = "[nvmlDeviceGetGpuInstanceProfileInfo(gpu(0), n).name for n in (0, 1, 2, 3, 4, 7, 9)]"


def create(profile: int, start: int, size: int) -> str:
    place = f"byref(c_nvmlGpuInstancePlacement_t({start}, {size}))"
    return f"kept.update(gi=nvmlDeviceCreateGpuInstanceWithPlacement(gpu(0), {profile}, {place}))"


COMPUTE = "kept.update(ci=nvmlGpuInstanceCreateComputeInstance(kept['gi'], 2))"
MODE = "nvmlDeviceSetMigMode(gpu(0), 1)"


@pytest.fixture(params=["a100-40gb", "h100-80gb"])
def library(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return install(tmp_path / "lib", "550.163.01", models.machine(request.param))


@pytest.fixture
def client(library: Path) -> Iterator[Client]:
    with Client(library) as child:
        child("nvmlInit()")
        yield child


def test_profiles_are_named_by_the_memory_of_the_gpu(library: Path, client: Client) -> None:
    one = -(-state.read(library).gpus[0].memory_total // 2**30) // 8  # of the GiB that it has, the last one not whole
    assert client(PROFILES) == [
        f"MIG {name}"
        for name in (
            f"1g.{one}gb",
            f"2g.{2 * one}gb",
            f"3g.{4 * one}gb",
            f"4g.{4 * one}gb",
            f"7g.{8 * one}gb",
            f"1g.{one}gb+me",
            f"1g.{2 * one}gb",
        )
    ]


@pytest.mark.parametrize(
    ("profile", "places"),
    [
        (19, [(n, 1) for n in range(7)]),
        (14, [(0, 2), (2, 2), (4, 2)]),
        (5, [(0, 4)]),
        (15, [(n, 2) for n in (0, 2, 4, 6)]),
    ],
    ids=["1g", "2g", "4g", "1g with twice the memory"],
)
def test_places_are_told_whether_or_not_the_mode_is_on(
    client: Client, profile: int, places: list[tuple[int, int]]
) -> None:
    client("kept.update(places=(c_nvmlGpuInstancePlacement_t * 16)(), count=c_uint(16))")
    client(f"nvmlDeviceGetGpuInstancePossiblePlacements(gpu(0), {profile}, kept['places'], byref(kept['count']))")
    found = client("[(p.start, p.size) for p in kept['places'][:kept['count'].value]]")
    assert [tuple(each) for each in found] == places


def test_an_instance_is_only_made_where_its_profile_lies(client: Client) -> None:
    client(MODE)
    assert client.error(create(19, 7, 1)) == INVALID_ARGUMENT
    assert client.error(create(14, 6, 2)) == INVALID_ARGUMENT
    client(create(9, 0, 4))
    assert client.error(create(19, 3, 1)) == INSUFFICIENT_RESOURCES
    client(create(20, 4, 1))
    assert client.error(create(20, 5, 1)) == INSUFFICIENT_RESOURCES, "media extensions are there once"


def test_an_instance_is_destroyed_after_its_compute_instances_and_leaves_its_place(
    library: Path, client: Client
) -> None:
    client(MODE)
    client(create(9, 4, 4))
    client(COMPUTE)
    assert client.error("nvmlGpuInstanceDestroy(kept['gi'])") == IN_USE
    client("nvmlComputeInstanceDestroy(kept['ci'])")
    assert client.error("nvmlDeviceGetMigDeviceHandleByIndex(gpu(0), 0)") == NOT_FOUND
    client("nvmlGpuInstanceDestroy(kept['gi'])")
    assert state.read(library).gpus[0].migs == ()
    client(create(9, 4, 4))


def test_what_somebody_computes_on_is_not_destroyed(library: Path, client: Client) -> None:
    client(MODE)
    client(create(9, 4, 4))
    client(COMPUTE)

    def use(machine: Any) -> Any:
        (mig,) = machine.gpus[0].migs
        return machine.with_gpu(0, migs=(replace(mig, processes=(Process(4711, 1),)),))

    state.update(library, use)
    assert client.error("nvmlComputeInstanceDestroy(kept['ci'])") == IN_USE
    assert client.error("nvmlDeviceSetMigMode(gpu(0), 0)") == IN_USE


def test_the_last_of_several_compute_instances_may_go_alone(library: Path, client: Client) -> None:
    client(MODE)
    client(create(9, 0, 4))
    client("kept.update(a=nvmlGpuInstanceCreateComputeInstance(kept['gi'], 0))")
    client("kept.update(b=nvmlGpuInstanceCreateComputeInstance(kept['gi'], 1))")
    before = state.read(library).gpus[0].migs
    assert [each.compute_slices for each in before] == [1, 2]
    client("nvmlComputeInstanceDestroy(kept['b'])")
    assert state.read(library).gpus[0].migs == before[:1]


def test_the_mode_of_an_ampere_in_use_waits_for_a_reset_and_of_a_hopper_is_refused(
    library: Path, client: Client
) -> None:
    state.update(library, lambda machine: machine.with_gpu(0, processes=(Process(4711, 1),)))
    is_ampere = state.read(library).gpus[0].pci_device_id == 0x20B010DE
    assert (client(MODE) if is_ampere else client.error(MODE)) == IN_USE
    gpu = state.read(library).gpus[0]
    assert (gpu.mig_enabled, gpu.mig_pending) == (False, is_ampere)


def test_a_reload_forgets_instances_and_after_ampere_the_mode_as_well(tmp_path: Path, library: Path) -> None:
    module = tmp_path / "sys/module/nvidia"
    module.mkdir(parents=True)
    (module / "version").write_text("550.163.01\n")
    state.update(library, lambda machine: replace(machine, sys_root=str(tmp_path / "sys")))
    with Client(library) as client:
        client("nvmlInit()")
        client(MODE)
        client(create(9, 0, 4))
        client(COMPUTE)
        assert client("nvmlDeviceGetMigMode(gpu(0))") == [1, 1]
    os.utime(module / "version", ns=(1, 1))
    with Client(library) as client:
        client("nvmlInit()")
        stays = state.read(library).gpus[0].pci_device_id == 0x20B010DE
        assert client("nvmlDeviceGetMigMode(gpu(0))") == [int(stays), int(stays)]
        assert client.error("nvmlDeviceGetMigDeviceHandleByIndex(gpu(0), 0)") == NOT_FOUND
        client(MODE)
        client(create(9, 4, 4))
    (mig,) = state.read(library).gpus[0].migs
    assert mig.placement_start == 4, "what was forgotten does not come back"


def test_capabilities_are_numbered_as_the_driver_numbers_them() -> None:
    minors = capabilities.minors(2)
    names = ("config", "monitor", "gpu0/gi0/access", "gpu0/gi0/ci7/access", "gpu0/gi1/access", "gpu1/gi0/access")
    assert [minors[name] for name in names] == [1, 2, 3, 11, 12, 138]
