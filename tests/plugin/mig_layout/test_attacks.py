"""Names and numbers that a driver tells, and what lies where the nodes of MIG are made, lead root nowhere else."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from lab.nvml import capabilities
from plugin.base.errors import MigError
from plugin.changes.mig_layout.holders import Users, with_users
from plugin.changes.mig_layout.nodes import make_nodes
from plugin.changes.mig_layout.store import read_layout
from plugin.driver.capabilities import read_mig_minors
from plugin.driver.mig_instances import CuttableGpu, GpuInstance
from plugin.holdings.holders.scan import Holder

GPU = CuttableGpu(
    0, "GPU-0", 0, is_cut=True, is_pending=True, instances=(GpuInstance(1, "3g.40gb", 0, 4, ((0, 3),), ("MIG-a",)),)
)
MAJOR = 507

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are root's")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    capabilities.write(tmp_path / "proc", 1, major=MAJOR)
    return tmp_path / "proc"


@only_root
@pytest.mark.parametrize("kind", ["a link", "a link that leads nowhere", "a file", "a socket", "another device"])
@pytest.mark.parametrize("place", ["nvidia-cap{}", ".nvidia-cap{}.new"])
def test_what_lies_in_a_nodes_place_is_replaced_and_not_followed(
    tmp_path: Path, proc: Path, place: str, kind: str
) -> None:
    folder, victim = tmp_path / "dev/nvidia-caps", tmp_path / "victim"
    folder.mkdir(parents=True)
    victim.write_text("the host's own\n")
    before = victim.stat().st_mode
    minors = read_mig_minors(proc)
    minor = minors["gpu0/gi1/access"]
    path = folder / place.format(minor)
    if kind == "a file":
        path.write_text("somebody's")
    elif kind == "a socket":
        os.mknod(path, stat.S_IFSOCK | 0o666)
    elif kind == "another device":
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 1))
    else:
        path.symlink_to(victim if kind == "a link" else tmp_path / "absent")

    assert make_nodes([GPU], minors, tmp_path / "dev", proc) == []

    made = (folder / f"nvidia-cap{minor}").lstat()
    assert (stat.S_IFMT(made.st_mode), stat.S_IMODE(made.st_mode)) == (stat.S_IFCHR, 0o444)
    assert made.st_rdev == os.makedev(MAJOR, minor)
    assert (victim.read_text(), victim.stat().st_mode) == ("the host's own\n", before)
    assert not (tmp_path / "absent").exists()


@only_root
@pytest.mark.parametrize("number", [-1, 2**31, 10**30])
def test_an_instance_of_a_number_that_there_is_not_gets_no_node(tmp_path: Path, proc: Path, number: int) -> None:
    (tmp_path / "dev").mkdir()
    forged = CuttableGpu(0, "GPU-0", 0, is_cut=True, instances=(GpuInstance(number, "../../sda", 0, 4, ((0, 3),)),))
    problems = make_nodes([forged], read_mig_minors(proc), tmp_path / "dev", proc)
    assert [problem.split()[:3] for problem in problems] == [["the", "driver", "names"]] * 2
    assert list((tmp_path / "dev").iterdir()) == []


@pytest.mark.parametrize("told", ["-1", "9" * 5000, str(2**20), str(2**40), "../../sda", "²", "0x10", "12 13", ""])
def test_a_minor_that_no_device_has_is_none(tmp_path: Path, told: str) -> None:
    """A number of 5,000 digits, or of more than a minor has, ended the change behind the first step."""
    path = tmp_path / "driver/nvidia-caps/mig-minors"
    path.parent.mkdir(parents=True)
    path.write_text(f"gpu0/gi1/access {told}\ngpu0/gi1/ci0/access 13\n")
    assert read_mig_minors(tmp_path) == {"gpu0/gi1/ci0/access": 13}


def test_an_instance_that_only_shares_a_name_with_anothers_counts_as_used() -> None:
    """Whoever is named twice has both: rather one too many stays."""
    twin = GpuInstance(2, "3g.40gb", 4, 4, ((0, 3),), ("MIG-a",))
    (found,) = with_users(
        [CuttableGpu(0, "GPU-0", 0, is_cut=True, is_pending=True, instances=(*GPU.instances, twin))],
        Users({"MIG-a": ["team/train"]}),
    )
    assert [each.holders for each in found.instances] == [("pod team/train",), ("pod team/train",)]


@pytest.mark.parametrize("command", ["grapnel-node", "nvidia-persistenced", "", "a" * 15])
def test_a_process_is_overlooked_by_its_number_and_unit_and_by_no_name(command: str) -> None:
    minors = {"gpu0/gi1/access": 3}
    process = Holder(9, command, ("/dev/nvidia-caps/nvidia-cap3",), "session-1.scope", container_id="0" * 64)
    (found,) = with_users([GPU], Users(processes=[process], minors=minors, daemon_pid=5))
    assert found.instances[0].holders == (f"process 9 ({command})",)


@pytest.mark.parametrize("kind", ["a pipe", "a device", "a folder"])
def test_a_layout_that_is_no_file_holds_nobody_up(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "mig-layout.json"
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a device":
        path = Path("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises(MigError, match="cannot be read"):
        read_layout(path)
