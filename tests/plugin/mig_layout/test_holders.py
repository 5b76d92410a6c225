"""Whoever has a GPU, an instance or the node of one is found, and whoever only looks at the driver is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plugin.changes.mig_layout.holders import Users, names_of, with_users
from plugin.driver.mig_instances import CuttableGpu, GpuInstance
from plugin.holdings.holders.scan import Holder

GPU = CuttableGpu(
    0,
    "GPU-0",
    0,
    is_cut=True,
    is_pending=True,
    instances=(
        GpuInstance(1, "3g.40gb", 0, 4, ((0, 3),), ("MIG-a",)),
        GpuInstance(2, "3g.40gb", 4, 4, ((0, 3),), ("MIG-b",), pids=(77,)),
    ),
)
MINORS = {"gpu0/gi1/access": 12, "gpu0/gi1/ci0/access": 13, "gpu0/gi2/access": 21, "gpu0/gi2/ci0/access": 22}


def holders_of(users: Users) -> list[tuple[str, ...]]:
    (found,) = with_users([GPU], users)
    return [each.holders for each in found.instances]


def test_a_pod_has_the_instance_of_its_mig_device() -> None:
    pods = {"MIG-a": ["team/train as nvidia.com/mig-3g.40gb"]}
    assert holders_of(Users(pods)) == [("pod team/train as nvidia.com/mig-3g.40gb",), ("process 77",)]


def test_a_pod_with_the_whole_gpu_has_every_instance() -> None:
    first, second = holders_of(Users({"GPU-0": ["a/b as nvidia.com/gpu"]}))
    assert first == ("pod a/b as nvidia.com/gpu",)
    assert second == ("pod a/b as nvidia.com/gpu", "process 77")


def test_a_process_has_the_instance_whose_capability_it_has_open() -> None:
    process = Holder(9, "python", ("/dev/nvidia-caps/nvidia-cap13", "/dev/nvidia0"), pod_name="team/train")
    assert holders_of(Users(processes=[process], minors=MINORS))[0] == ("process 9 (python) of pod team/train",)


def test_a_process_with_the_gpu_open_keeps_its_mode_and_no_instance() -> None:
    (found,) = with_users([GPU], Users(processes=[Holder(9, "dcgm", ("/dev/nvidia0",))], minors=MINORS))
    assert found.holders == ("process 77", "process 9 (dcgm)")
    assert [each.holders for each in found.instances] == [(), ("process 77",)]


def test_neither_the_daemon_nor_persistence_is_in_the_way() -> None:
    persistence = Holder(6, "nvidia-persiste", ("/dev/nvidia0",), "nvidia-persistenced.service")
    processes = [Holder(5, "grapnel-node", ("/dev/nvidia0",)), persistence]
    (found,) = with_users([replace(GPU, instances=())], Users(processes=processes, daemon_pid=5))
    assert found.holders == ()


@pytest.mark.parametrize("unit", [None, "session-3.scope", "user@1000.service"])
def test_nobody_is_overlooked_for_being_called_persistence(unit: str | None) -> None:
    """Every process names itself: with that name it had an instance open, was not told, and the change failed."""
    devices = ("/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap13")
    users = Users(processes=[Holder(6, "nvidia-persiste", devices, unit)], minors=MINORS)
    (found,) = with_users([GPU], users)
    assert "process 6 (nvidia-persiste)" in found.holders
    assert found.instances[0].holders == ("process 6 (nvidia-persiste)",)


def test_a_node_of_another_gpu_is_nobodys_here() -> None:
    (found,) = with_users([GPU], Users(processes=[Holder(9, "python", ("/dev/nvidia1", "/dev/nvidia-uvm"))]))
    assert found.holders == ("process 77",)


def test_of_those_that_are_known_by_name_alone_only_nvmls_processes_count() -> None:
    known = names_of([Holder(77, "trainer", ("/dev/nvidia0",)), Holder(9, "dcgm", ("/dev/nvidia0",))], MINORS)
    (found,) = with_users([GPU], known)
    assert found.holders == ("process 77 (trainer)",)
