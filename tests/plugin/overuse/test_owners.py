"""Whose processes are, with the uids of their pods: nobody's where anything is in doubt."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from plugin.holdings.holders.cgroup import Place
from plugin.holdings.holders.pod_names import PodNames
from plugin.holdings.holders.processes import ProcessTable
from plugin.kubelet.pod_resources.attribution import PodContainer
from plugin.sharing.overuse.measure import OwnerReader
from tests.plugin.overuse.shares import container, owner, uid
from tests.plugin.proc_folder import LogFolder, ProcFolder

if TYPE_CHECKING:
    from pathlib import Path

PLACE = Place(None, uid(1), container(1))
NAME = PodContainer("team", "a", "main")
TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def proc(tmp_path: Path) -> ProcFolder:
    return ProcFolder(tmp_path / "proc")


@pytest.fixture
def logs(tmp_path: Path) -> LogFolder:
    return LogFolder(tmp_path / "log")


def read(proc: ProcFolder, logs: LogFolder, before_s: float = 50.0) -> object:
    return OwnerReader(ProcessTable(proc.folder), PodNames(logs.folder)).read({1: before_s})


def test_a_process_is_its_containers(proc: ProcFolder, logs: LogFolder) -> None:
    proc.add(1, PLACE)
    logs.add(PLACE, NAME)
    assert read(proc, logs) == {1: owner("a", 1)}


def test_a_process_that_began_after_the_list_may_have_the_id_of_another(proc: ProcFolder, logs: LogFolder) -> None:
    proc.add(1, PLACE, began_ticks=51 * TICKS)
    logs.add(PLACE, NAME)
    assert read(proc, logs) == {}


@pytest.mark.parametrize("trouble", ["it ended", "no name", "no container", "the log of another pod", "of the host"])
def test_what_is_in_doubt_is_nobodys(proc: ProcFolder, logs: LogFolder, trouble: str) -> None:
    if trouble == "of the host":
        proc.add(1, Place("x.service"))
    elif trouble != "it ended":
        proc.add(1, Place(None, uid(1), None if trouble == "no container" else container(1)))
    if trouble == "the log of another pod":
        logs.add(Place(None, uid(9), container(1)), NAME)
    elif trouble != "no name":
        logs.add(PLACE, NAME)
    assert read(proc, logs) == {}


def test_a_namespace_of_its_own_tells_nothing(proc: ProcFolder, logs: LogFolder) -> None:
    proc.add(1, PLACE)
    logs.add(PLACE, NAME)
    proc.set_namespace("pid:[4026532000]")
    assert read(proc, logs) is None
