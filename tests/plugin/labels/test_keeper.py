"""Labels while the daemon runs: when they are made, what becomes of the file, and who hears of them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from plugin.base.log import Logger
from plugin.devices.inventory import Inventory, without_driver
from plugin.devices.observer import Observation
from plugin.publication.labels.keeper import LabelKeeper
from plugin.settings.model import DaemonSettings, LabelSettings
from plugin.settings.node_config import NodeConfig
from tests.plugin.labels.nodes import a100, cut, inventory_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from plugin.publication.labels.features import Features

ONE, TWO = inventory_of([a100(0)]), inventory_of([a100(0), a100(1)])
NO_DRIVER = Observation(Inventory(), "driver not loaded")


class Node:
    """A keeper under way, its file, and what it told."""

    def __init__(self, folder: Path, settings: LabelSettings) -> None:
        self.file = folder / "gfd"
        self.moment = 100.0
        self.heard: list[Mapping[str, str]] = []
        self.config = NodeConfig(sys_root=folder / "sys", settings=DaemonSettings(labels=settings))
        self.keeper = LabelKeeper(Logger(), now=lambda: self.moment, after_s=0)
        self.keeper.on_change = self._on_change
        self.objects: list[tuple[str, str | None, int]] = []  # namespace, count of GPUs by label, and as instances
        self.keeper.on_features = self._on_features
        self._change = asyncio.Event()

    def _on_change(self, labels: Mapping[str, str]) -> None:
        self.heard.append(labels)
        self._change.set()

    def _on_features(self, namespace: str, labels: Mapping[str, str], features: Features | None) -> None:
        gpus = 0 if features is None else len(features.instances["grapnel.gpu"])
        self.objects.append((namespace, labels.get("nvidia.com/gpu.count"), gpus))

    def see(self, inventory: Inventory) -> None:
        self.keeper.observed(Observation(inventory), self.config)

    async def change(self) -> None:
        await asyncio.wait_for(self._change.wait(), 20)
        self._change.clear()

    def counts(self) -> list[str | None]:
        return [labels.get("nvidia.com/gpu.count") for labels in self.heard]

    @property
    def written(self) -> str:
        return self.file.read_text()


def settings_of(folder: Path, **changes: Any) -> LabelSettings:
    return LabelSettings(**{"file": folder / "gfd", **changes})


def run(node_of: object, script: object) -> None:
    """Run a script with a node's keeper under way."""

    async def whole() -> None:
        node = node_of()  # type: ignore[operator] # made in the loop
        following = asyncio.ensure_future(node.keeper.follow())
        try:
            await script(node)  # type: ignore[operator]
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following

    asyncio.run(whole())


def test_labels_are_told_and_written_and_taken_away_at_the_end(tmp_path: Path) -> None:
    async def script(node: Node) -> None:
        known = [node.keeper.current]
        node.see(TWO)
        await node.change()
        assert [*known, node.keeper.current] == [None, node.heard[0]]
        assert "nvidia.com/gpu.count=2\n" in node.written
        assert "nvidia.com/gfd.timestamp=100\n" in node.written
        node.keeper.close(stays=False)
        assert not node.file.exists()

    run(lambda: Node(tmp_path, settings_of(tmp_path)), script)


def test_other_gpus_are_other_labels_of_another_time(tmp_path: Path) -> None:
    async def script(node: Node) -> None:
        node.see(ONE)
        await node.change()
        node.moment = 200.0
        node.see(TWO)
        await node.change()
        assert node.counts() == ["1", "2"]
        assert "nvidia.com/gfd.timestamp=200\n" in node.written

    run(lambda: Node(tmp_path, settings_of(tmp_path)), script)


def test_what_changes_no_label_is_not_told(tmp_path: Path) -> None:
    async def script(node: Node) -> None:
        node.see(ONE)
        await node.change()
        node.moment = 200.0
        node.see(replace(ONE, findings=(("nvidia-uvm", "gone"),)))
        node.see(replace(ONE, devices=tuple(replace(device, unhealthy="xid 79") for device in ONE.devices)))
        node.keeper.observed(Observation(without_driver(ONE, "driver not loaded"), "driver not loaded"), node.config)
        node.see(TWO)
        await node.change()
        assert node.counts() == ["1", "2"]

    run(lambda: Node(tmp_path, settings_of(tmp_path)), script)


def test_a_driver_that_is_away_labels_the_gpus_of_before_by_other_settings(tmp_path: Path) -> None:
    async def script(node: Node) -> None:
        node.see(ONE)
        await node.change()
        labels = settings_of(tmp_path, has_timestamp=False)
        node.config = replace(node.config, settings=DaemonSettings(mig_strategy="mixed", labels=labels))
        node.keeper.observed(NO_DRIVER, node.config)
        await node.change()
        assert node.counts() == ["1", "1"]
        assert "nvidia.com/gfd.timestamp" not in node.heard[1]

    run(lambda: Node(tmp_path, settings_of(tmp_path)), script)


def test_gpus_that_are_only_remembered_are_not_labelled(tmp_path: Path) -> None:
    async def script(node: Node) -> None:
        node.file.write_text("nvidia.com/gpu.count=8\n")
        node.keeper.observed(Observation(without_driver(TWO, "waits"), "driver not loaded"), node.config)
        assert not node.keeper._changed.is_set()
        assert node.file.exists()
        node.see(ONE)
        await node.change()
        assert node.counts() == ["1"]

    run(lambda: Node(tmp_path, settings_of(tmp_path)), script)


def test_without_a_driver_since_the_start_what_was_left_goes(tmp_path: Path) -> None:
    async def script(node: Node) -> None:
        node.file.write_text("nvidia.com/gpu.count=8\n")
        node.keeper.observed(NO_DRIVER, node.config)
        await node.change()
        assert node.keeper.current == {}
        assert not node.file.exists()
        node.see(ONE)
        await node.change()
        assert node.counts() == [None, "1"]

    run(lambda: Node(tmp_path, settings_of(tmp_path)), script)


def test_a_file_that_somebody_took_away_is_put_back(tmp_path: Path) -> None:
    async def script(node: Node) -> None:
        node.see(ONE)
        await node.change()
        text = node.written
        node.moment = 200.0
        node.file.unlink()
        for _ in range(2000):
            if node.file.exists():
                break
            await asyncio.sleep(0.01)
        assert node.written == text
        assert node.counts() == ["1"]

    run(lambda: Node(tmp_path, settings_of(tmp_path, pause_s=0.05)), script)


def test_labels_that_are_made_once_stay_as_they_are(tmp_path: Path) -> None:
    async def script(node: Node) -> None:
        node.see(ONE)
        await node.change()
        node.see(TWO)
        assert not node.keeper._changed.is_set()
        node.keeper.close(stays=False)
        assert "gpu.count=1\n" in node.written

    run(lambda: Node(tmp_path, settings_of(tmp_path, pause_s=None)), script)


def test_labels_that_are_made_once_wait_for_a_gpu(tmp_path: Path) -> None:
    async def script(node: Node) -> None:
        node.keeper.observed(NO_DRIVER, node.config)
        await node.change()
        node.see(ONE)
        await node.change()
        assert node.counts() == [None, "1"]

    run(lambda: Node(tmp_path, settings_of(tmp_path, pause_s=None)), script)


def test_other_settings_count_at_once_and_move_the_file(tmp_path: Path) -> None:
    async def script(node: Node) -> None:
        sliced = inventory_of([cut(0, "1g.10gb")])
        node.see(sliced)
        await node.change()
        labels = settings_of(tmp_path, file=tmp_path / "other", has_timestamp=False)
        node.config = replace(node.config, settings=DaemonSettings(mig_strategy="mixed", labels=labels))
        node.see(sliced)
        await node.change()
        assert "nvidia.com/mig-1g.10gb.count" in node.heard[1]
        assert "nvidia.com/gfd.timestamp" not in node.heard[1]
        assert not node.file.exists()
        assert (tmp_path / "other").exists()

    run(lambda: Node(tmp_path, settings_of(tmp_path, pause_s=None)), script)


def test_a_node_that_stays_released_keeps_its_file(tmp_path: Path) -> None:
    async def script(node: Node) -> None:
        node.see(ONE)
        await node.change()
        node.keeper.close(stays=True)
        assert node.file.exists()

    run(lambda: Node(tmp_path, settings_of(tmp_path)), script)


@pytest.mark.parametrize(
    ("is_wanted", "said"),
    [
        pytest.param(True, "cannot be written: no such file or directory", id="somebody asked for it"),
        pytest.param(False, "", id="nobody asked for it"),
    ],
)
def test_a_folder_that_is_not_there_is_told_where_the_file_is_wanted(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    *,
    is_wanted: bool,
    said: str,
) -> None:
    settings = settings_of(tmp_path, file=tmp_path / "absent/gfd", is_file_wanted=is_wanted)

    async def script(node: Node) -> None:
        node.see(ONE)
        await node.change()
        assert node.counts() == ["1"]
        node.keeper.close(stays=False)

    run(lambda: Node(tmp_path, settings), script)
    assert [said in record.message for record in caplog.records if "gfd" in record.message] == [True] * bool(said)


def test_what_cannot_be_seen_in_the_labels_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def script(node: Node) -> None:
        node.see(inventory_of([a100(0), a100(1, "NVIDIA L4")]))
        await node.change()
        node.see(inventory_of([a100(0), a100(1, "NVIDIA L4"), a100(2)]))
        await node.change()

    run(lambda: Node(tmp_path, settings_of(tmp_path, file=None)), script)
    notes = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert notes == ["labels speak of NVIDIA A100-SXM4-80GB alone: there are NVIDIA L4, too"]
    assert not (tmp_path / "gfd").exists()


def test_labels_move_from_the_node_to_an_object_and_back(tmp_path: Path) -> None:
    async def script(node: Node) -> None:
        node.see(ONE)
        await node.change()
        on_node = node.config
        in_object = settings_of(tmp_path, file=None, is_on_node=False, feature_namespace="nfd")
        node.config = replace(on_node, settings=DaemonSettings(labels=in_object))
        node.see(ONE)
        await node.change()
        assert node.objects == [("nfd", "1", 1)]
        node.config = on_node
        node.see(ONE)
        await node.change()
        assert node.objects == [("nfd", "1", 1), ("", None, 0)]
        assert node.counts() == ["1", None, "1"]

    run(lambda: Node(tmp_path, settings_of(tmp_path)), script)
