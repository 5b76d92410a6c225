"""Groups that are there, and what only looks like one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from plugin.base.errors import LimitError
from plugin.sharing.memory_limits.keeper import full_path, is_there
from tests.control_groups import control_group, hierarchy

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder that looks like the root of cgroup v2, with one group."""
    for folder in (tmp_path, tmp_path / "pods"):
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.procs").touch()
    (tmp_path / "cgroup.controllers").touch()
    return tmp_path


def test_a_group_has_a_full_path_until_it_is_gone(root: Path) -> None:
    path = full_path(root, "/pods")
    assert path == f"{root}/pods"
    assert is_there(path)
    (root / "pods/cgroup.procs").unlink()
    (root / "pods").rmdir()
    assert not is_there(path)


def test_a_real_group_is_found() -> None:
    root = hierarchy()
    with control_group(f"grapnel-test-{os.getpid()}") as group:
        assert root is not None
        assert full_path(root, f"/{group.name}") == str(group)
    assert not is_there(str(group))


def test_a_hierarchy_of_cgroup_v1_is_refused(root: Path) -> None:
    (root / "cgroup.controllers").unlink()
    with pytest.raises(LimitError, match="is not cgroup v2"):
        full_path(root, "/pods")


@pytest.mark.parametrize(
    ("name", "target"), [("absent", None), ("out", "/tmp"), ("inside", "pods")], ids=["nothing", "a link out", "a link"]
)
def test_what_is_no_group_is_refused(root: Path, name: str, target: str | None) -> None:
    if target is not None:
        (root / name).symlink_to(target)
    with pytest.raises(LimitError, match="is not there"):
        full_path(root, f"/{name}")
