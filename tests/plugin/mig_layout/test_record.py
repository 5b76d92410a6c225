"""What a change remembers is read as it was written, and what is damaged is told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from plugin.base.errors import MigError
from plugin.changes.driver_change.release.store import sole_change
from plugin.changes.mig_layout.change.store import (
    CHANGE_FILE,
    OpenMigChange,
    forget,
    is_locked,
    parse_change,
    read_change,
    render_change,
    write_change,
)
from plugin.changes.mig_layout.model import Instance
from plugin.changes.mig_layout.store import Before, cuts_of, parse_before, read_layout, render_before
from tests.plugin.mig_layout.gpus import gpu, instance

if TYPE_CHECKING:
    from pathlib import Path

CHANGE = OpenMigChange("2026-11-23T23:00:00Z", frozenset({"GPU-0", "GPU-1"}), closes=True)


def test_what_was_before_is_read_as_it_was_written() -> None:
    gpus = cuts_of([gpu(instance("3g.40gb", 4, 1, 2, number=3, holders=("pod a",))), gpu(index=1, is_cut=False)])
    before = Before("2026-11-23T23:00:00Z", "digest", gpus, is_done=True, after=gpus)
    assert gpus["GPU-0"] == (True, (Instance(4, 4, "3g.40gb", (1, 2)),)), "neither numbers nor users are remembered"
    assert parse_before(render_before(before).encode()) == before


def test_a_change_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_change(tmp_path, CHANGE)
    assert read_change(tmp_path) == CHANGE
    forget(tmp_path, CHANGE_FILE)
    assert read_change(tmp_path) is None
    forget(tmp_path, CHANGE_FILE)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"schema": "of the future"}', b"\xff"])
def test_a_change_that_nobody_understands_still_is_one(tmp_path: Path, content: bytes) -> None:
    (tmp_path / CHANGE_FILE).write_bytes(content)
    change = read_change(tmp_path)
    assert change is not None
    assert str(tmp_path / CHANGE_FILE) in change.problem


@pytest.mark.parametrize("key", ["since", "gpus", "closes"])
def test_a_change_lacks_nothing(key: str) -> None:
    document = json.loads(render_change(CHANGE))
    del document[key]
    with pytest.raises(ValueError, match=key):
        parse_change(json.dumps(document).encode())


def test_a_layout_that_is_not_there_is_none_and_one_that_is_wrong_is_told_with_its_path(tmp_path: Path) -> None:
    assert read_layout(tmp_path / "mig-layout.json") is None
    (tmp_path / "mig-layout.json").write_text("{}")
    with pytest.raises(MigError, match=r"mig-layout\.json cannot be understood: version is missing"):
        read_layout(tmp_path / "mig-layout.json")


def test_a_change_is_under_way_while_somebody_has_the_lock(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    with sole_change(tmp_path, 1.0):
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)
    assert not is_locked(tmp_path / "nowhere")
