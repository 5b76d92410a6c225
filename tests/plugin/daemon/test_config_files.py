"""A pod notices that its configuration was written, as nobody signals it."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from plugin.daemon.config_files import ConfigFiles, signature_of
from plugin.settings.node_config import read_config

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from plugin.settings.node_config import NodeConfig


@pytest.fixture
def config(tmp_path: Path) -> NodeConfig:
    (tmp_path / "devices.d").mkdir()
    (tmp_path / "devices.d/a.json").write_text("{}")
    (tmp_path / "nvidia.yaml").write_text("version: v1")
    keys = {"nvidiaConfigFile": "nvidia.yaml", "deviceClassesFolder": "devices.d"}
    text = json.dumps({key: str(tmp_path / name) for key, name in keys.items()})
    (tmp_path / "node.json").write_text(text)
    return read_config(tmp_path / "node.json")


def put(place: Path, text: str, folder: Path) -> None:
    """Put a file in its place as `apply` does, in one step: one that is written there is empty for a moment."""
    (folder / "new").write_text(text)
    (folder / "new").rename(place)


CHANGES: dict[str, Callable[[Path], object]] = {
    "node.json is replaced": lambda folder: put(folder / "node.json", (folder / "node.json").read_text(), folder),
    "node.json is gone": lambda folder: (folder / "node.json").unlink(),
    "nvidia's file is written": lambda folder: put(folder / "nvidia.yaml", "version: v1 ", folder),
    "a class is added": lambda folder: put(folder / "devices.d/b.json", "{}", folder),
    "a class is gone": lambda folder: (folder / "devices.d/a.json").unlink(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_told_once(change: Callable[[Path], object], config: NodeConfig, tmp_path: Path) -> None:
    async def follow() -> int:
        told: list[None] = []
        is_told = asyncio.Event()

        def tell() -> None:
            told.append(None)
            is_told.set()

        task = asyncio.ensure_future(ConfigFiles(lambda: config, tell, 0.01).follow())
        await asyncio.sleep(0.05)
        assert not told
        change(tmp_path)
        await is_told.wait()
        await asyncio.sleep(0.05)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return len(told)

    assert asyncio.run(asyncio.wait_for(follow(), 20)) == 1


def test_files_that_are_not_there_are_no_change(config: NodeConfig, tmp_path: Path) -> None:
    nowhere = replace(config, device_classes=tmp_path / "nowhere", nvidia_config=None, origin="")
    assert signature_of(nowhere) == ()
