"""Owners of real processes in real control groups, with names as a kubelet leaves them."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.nodes.cgroup import ControlGroup
from plugin.holdings.holders.cgroup import Place
from plugin.holdings.holders.pod_names import PodNames
from plugin.holdings.holders.processes import ProcessTable
from plugin.kubelet.pod_resources.attribution import OUTSIDE, PodContainer
from plugin.publication.metrics.serving.owners import OwnerReader
from tests.plugin.proc_folder import LogFolder

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.functional,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root makes control groups"),
]

PLACE = Place(None, "0f3b7a52-9d1e-4c60-8a77-3f1d5e6b9a10", "4f1c" * 16)
MAIN = PodContainer("team-a", "train-0", "main")


@pytest.fixture
def folders() -> Iterator[list[Path]]:
    """Make the control group of a container as the cgroupfs driver does, in every hierarchy."""
    group = ControlGroup(f"gn-test-owners-{os.getpid()}")
    try:
        made = [folder / f"kubepods/burstable/pod{PLACE.pod_uid}/{PLACE.container_id}" for folder in group.create()]
        for folder in made:
            folder.mkdir(parents=True)
        yield made
    finally:
        group.kill()
        group.remove()


def test_a_real_process_in_a_containers_control_group_is_the_containers(tmp_path: Path, folders: list[Path]) -> None:
    logs = LogFolder(tmp_path / "log")
    logs.add(PLACE, MAIN)
    with subprocess.Popen(["sleep", "60"]) as inside, subprocess.Popen(["sleep", "60"]) as outside:
        for folder in folders:
            (folder / "cgroup.procs").write_text(str(inside.pid))
        time.sleep(0.03)  # the kernel's times are of ticks of 10 ms
        before_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        reader = OwnerReader(ProcessTable(Path("/proc")), PodNames(logs.folder))
        owners = dict(reader.read({inside.pid: before_s, outside.pid: before_s, 2**22 + 1: before_s}))
        inside.kill()
        outside.kill()
    assert owners == {inside.pid: MAIN, outside.pid: OUTSIDE}
    assert dict(reader.read({inside.pid: before_s})) == {}, "it has ended"
