"""Whose processes are, asked of folders in the form of /proc and of the kubelet's logs."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING

import pytest

from plugin.base.log import Logger
from plugin.holdings.holders.cgroup import Place
from plugin.holdings.holders.pod_names import PodNames
from plugin.holdings.holders.processes import ProcessTable
from plugin.kubelet.pod_resources.attribution import OUTSIDE, PodContainer
from plugin.publication.metrics.serving.owners import OwnerQuestion, OwnerReader
from tests.plugin.proc_folder import LogFolder, ProcFolder

if TYPE_CHECKING:
    from pathlib import Path

UID, OTHER_UID = "0f3b7a52-9d1e-4c60-8a77-3f1d5e6b9a10", "11111111-2222-4333-8444-555566667777"
PLACE, GONE = Place(None, UID, "4f1c" * 16), Place(None, OTHER_UID, "09ab" * 16)
MAIN = PodContainer("team-a", "train-0", "main")
SERVICE = Place("x.service")
BEFORE_S = 10.0


class Node:
    """A /proc, logs, and who asks for owners."""

    def __init__(self, folder: Path) -> None:
        self.proc = ProcFolder(folder / "proc")
        self.logs = LogFolder(folder / "log")
        self.table = ProcessTable(self.proc.folder, ticks_per_s=100)
        self.names = PodNames(self.logs.folder)

    def read(self, *pids: int) -> dict[int, PodContainer]:
        return dict(OwnerReader(self.table, self.names).read(dict.fromkeys(pids, BEFORE_S)))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    found = Node(tmp_path)
    found.logs.add(PLACE, MAIN)
    found.proc.add(1, PLACE)
    found.proc.add(2, SERVICE)
    return found


def test_a_process_belongs_to_its_container_or_to_no_pod(node: Node) -> None:
    assert node.read(1, 2) == {1: MAIN, 2: OUTSIDE}


def test_a_process_that_ended_has_no_owner_that_can_be_told(node: Node) -> None:
    assert node.read(1, 3) == {1: MAIN}


def test_a_process_that_got_the_id_of_another_is_not_taken_for_it(node: Node) -> None:
    node.proc.add(3, PLACE, began_ticks=2000)
    assert node.read(3) == {}


def test_a_process_of_a_pod_that_has_no_name_is_not_outside_of_pods(node: Node) -> None:
    node.proc.add(3, GONE)
    assert node.read(3) == {}


def test_of_very_many_processes_the_first_are_looked_at(node: Node) -> None:
    assert node.read(1, *range(100, 5000), 2) == {1: MAIN}


def ask(node: Node, *rounds: int, timeout_s: float = 60) -> list[dict[int, PodContainer]]:
    async def scenario() -> list[dict[int, PodContainer]]:
        question = OwnerQuestion(node.proc.folder, node.logs.folder, Logger(), timeout_s=timeout_s)
        return [dict(await question({pid: BEFORE_S})) for pid in rounds]

    return asyncio.run(scenario())


def test_owners_are_asked_for_outside_of_the_event_loop(node: Node) -> None:
    assert ask(node, 1, 2) == [{1: MAIN}, {2: OUTSIDE}]


def test_in_a_process_namespace_of_its_own_nobody_is_told_and_that_is_said_once(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.proc.set_namespace("pid:[4026532001]")
    with caplog.at_level(logging.WARNING):
        assert ask(node, 1, 1, 2) == [{}, {}, {}]
    assert [record.message for record in caplog.records if "namespace" in record.message] == [caplog.messages[0]]
    assert len(caplog.messages) == 1


def test_a_disk_that_hangs_costs_the_owners_and_not_the_page(node: Node) -> None:
    pipe = node.proc.folder / "7/stat"
    pipe.parent.mkdir()
    os.mkfifo(pipe)
    found = ask(node, 7, 1, timeout_s=0.05)
    assert found == [{}, {}], "a second question waits for the first"
    with pipe.open("w"):
        pass  # lets the thread end
