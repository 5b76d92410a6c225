"""Capability nodes are made with the driver's numbers; one of other numbers would open somebody else's instance."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from lab.nvml import capabilities
from plugin.changes.mig_layout.nodes import make_nodes
from plugin.driver.capabilities import read_mig_minors
from plugin.driver.mig_instances import CuttableGpu, GpuInstance

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are root's")

INSTANCES = (GpuInstance(1, "3g.40gb", 0, 4, ((0, 3),)), GpuInstance(9, "2g.20gb", 4, 2, ((0, 1), (1, 1))))
GPUS = [CuttableGpu(1, "GPU-1", 1, is_cut=True, is_pending=True, instances=INSTANCES)]


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    capabilities.write(tmp_path / "proc", 2, major=507)
    return tmp_path / "proc"


def made(dev: Path) -> dict[str, tuple[int, int]]:
    found = {path.name: path.stat() for path in (dev / "nvidia-caps").iterdir()}
    assert all(stat.S_ISCHR(each.st_mode) and stat.S_IMODE(each.st_mode) == 0o444 for each in found.values())
    return {name: (os.major(each.st_rdev), os.minor(each.st_rdev)) for name, each in found.items()}


def test_every_instance_gets_its_nodes(tmp_path: Path, proc: Path) -> None:
    (tmp_path / "dev").mkdir()
    minors = read_mig_minors(proc)
    assert make_nodes(GPUS, minors, tmp_path / "dev", proc) == []
    names = ["gi1/access", "gi1/ci0/access", "gi9/access", "gi9/ci0/access", "gi9/ci1/access"]
    wanted = [minors[f"gpu1/{name}"] for name in names]
    assert made(tmp_path / "dev") == {f"nvidia-cap{minor}": (507, minor) for minor in wanted}


def test_a_node_of_other_numbers_is_replaced_and_a_right_one_stays(tmp_path: Path, proc: Path) -> None:
    folder = tmp_path / "dev/nvidia-caps"
    folder.mkdir(parents=True)
    minors = read_mig_minors(proc)
    wrong, right = (minors[f"gpu1/gi1/{name}"] for name in ("access", "ci0/access"))
    os.mknod(folder / f"nvidia-cap{wrong}", stat.S_IFCHR | 0o444, os.makedev(240, 7))
    os.mknod(folder / f"nvidia-cap{right}", stat.S_IFCHR | 0o444, os.makedev(507, right))
    inode = (folder / f"nvidia-cap{right}").stat().st_ino
    assert make_nodes(GPUS, minors, tmp_path / "dev", proc) == []
    assert made(tmp_path / "dev")[f"nvidia-cap{wrong}"] == (507, wrong)
    assert (folder / f"nvidia-cap{right}").stat().st_ino == inode


def test_what_the_kernel_does_not_number_is_told_and_nothing_is_replaced(tmp_path: Path, proc: Path) -> None:
    (proc / "devices").write_text("Character devices:\n  1 mem\n")
    (tmp_path / "dev").mkdir()
    problems = make_nodes(GPUS, read_mig_minors(proc), tmp_path / "dev", proc)
    assert len(problems) == 5
    assert all("the kernel names no major number nvidia-caps" in each for each in problems)


def test_an_instance_that_the_driver_does_not_number_is_told(tmp_path: Path, proc: Path) -> None:
    assert make_nodes(GPUS, {}, tmp_path, proc)[0] == "the driver names no capability node for gpu1/gi1/access"


def test_without_instances_nothing_is_looked_at(tmp_path: Path) -> None:
    assert make_nodes([CuttableGpu(0, "GPU-0", 0)], {}, tmp_path / "none", tmp_path / "none") == []
