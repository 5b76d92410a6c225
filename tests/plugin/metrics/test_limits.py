"""Limits by container: the driver's groups, with the names that the kubelet's folders have for them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from plugin.driver.telemetry import GroupMemory
from plugin.holdings.holders.cgroup import Place
from plugin.kubelet.pod_resources.attribution import PodContainer
from plugin.publication.metrics.serving.owners import LimitQuestion
from plugin.sharing.memory_limits.keeper import LimitedGroup
from tests.plugin.fakes import gpu
from tests.plugin.proc_folder import LogFolder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

UID, ID, OTHER_ID = "0f3b7a52-9d1e-4c60-8a77-3f1d5e6b9a10", "4f1c" * 16, "09ab" * 16
MAIN = PodContainer("team-a", "train-0", "main")
MEMORY = {gpu(0).uuid: GroupMemory(1 << 30, 7)}


class Source:
    """Knows the groups that it is told."""

    def __init__(self, *ids: str) -> None:
        self.groups = tuple((LimitedGroup(f"/sys/fs/cgroup/kubepods/pod{UID}/{each}", {}), MEMORY) for each in ids)

    async def read(self) -> tuple[tuple[LimitedGroup, Mapping[str, GroupMemory]], ...]:
        return self.groups


def limited(folder: Path, *ids: str) -> object:
    logs = LogFolder(folder)
    logs.add(Place(None, UID, ID), MAIN)
    return asyncio.run(LimitQuestion(Source(*ids), logs.folder)())


def test_a_limit_is_that_of_its_container(tmp_path: Path) -> None:
    assert limited(tmp_path, ID) == {(MAIN, gpu(0).uuid): GroupMemory(1 << 30, 7)}


def test_without_limits_nobody_is_asked_for_names(tmp_path: Path) -> None:
    assert limited(tmp_path) == {}


def test_a_container_of_a_pod_with_one_known_container_is_told_by_its_folder(tmp_path: Path) -> None:
    assert limited(tmp_path, OTHER_ID) == {(MAIN, gpu(0).uuid): MEMORY[gpu(0).uuid]}
