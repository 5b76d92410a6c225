"""Which driver is to come, as the node's own folder of drivers says."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from plugin.daemon.optional.claims import next_driver
from plugin.dra.devices import Features
from plugin.dra.slices import announced
from tests.plugin.dra.test_slices import device

if TYPE_CHECKING:
    from pathlib import Path

OLD, NEW, NEWER = "535.261.03", "550.163.01", "570.86.15"
A, B, C = "a" * 12, "b" * 12, "c" * 12


def stage(home: Path, change: str, version: object, *, is_complete: bool = True, at: int = 0) -> None:
    folder = home / "staged" / change
    folder.mkdir(parents=True)
    (folder / "change.json").write_text(json.dumps({"version": version}))
    if is_complete:
        (folder / "complete").touch()
        os.utime(folder / "complete", (at, at))


def test_a_driver_that_is_staged_and_not_swapped_in_is_to_come(tmp_path: Path) -> None:
    assert next_driver(OLD, tmp_path) == ""
    stage(tmp_path, A, OLD)
    (tmp_path / "current").symlink_to("staged/" + A)
    assert next_driver(OLD, tmp_path) == ""
    stage(tmp_path, B, NEW, is_complete=False)
    assert next_driver(OLD, tmp_path) == ""
    (tmp_path / "staged" / B / "complete").touch()
    assert next_driver(OLD, tmp_path) == NEW
    (tmp_path / "current").unlink()
    (tmp_path / "current").symlink_to("staged/" + B)
    (tmp_path / "previous").symlink_to("staged/" + A)
    assert next_driver(NEW, tmp_path) == ""


def test_of_several_the_one_that_was_staged_last_is_to_come(tmp_path: Path) -> None:
    stage(tmp_path, B, NEW, at=100)
    stage(tmp_path, C, NEWER, at=200)
    assert next_driver(OLD, tmp_path) == NEWER


@pytest.mark.parametrize("version", [None, 550, "550; x", "v550.1", OLD])
def test_what_says_no_other_version_is_no_change_to_come(version: object, tmp_path: Path) -> None:
    stage(tmp_path, B, version)
    assert next_driver(OLD, tmp_path) == ""


def test_a_set_that_cannot_be_read_or_is_none_of_ours_is_no_change_to_come(tmp_path: Path) -> None:
    stage(tmp_path, B, NEW)
    (tmp_path / "staged" / B / "change.json").write_text("{")
    stage(tmp_path, "lost+found", NEW)
    (tmp_path / "staged" / "file").touch()
    assert next_driver(OLD, tmp_path) == ""


def test_each_device_of_the_slices_says_what_is_to_come() -> None:
    (found,) = announced([device(1)], "550.163.1")
    assert found.to_json(Features())["attributes"]["grapnel.dev/nextDriverVersion"] == {"version": "550.163.1"}
    assert announced([device(1)], "") == (device(1),)
