"""Whose nvidia-imex runs on a node, by control groups that others may name as they like."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lab.nvml.imex import READY, SERVICE
from lab.nvml.imex import Imex as Simulated
from plugin.base.errors import ClaimError
from plugin.sharing.imex import Imex

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def host(tmp_path: Path) -> Simulated:
    made = Simulated(tmp_path, tmp_path / "proc", tmp_path / "dev")
    made.say(READY)
    return made


def refused(tmp_path: Path) -> str:
    try:
        asyncio.run(Imex(tmp_path / "nvidia-imex-ctl", tmp_path / "proc").require_ready())
    except ClaimError as error:
        return error.message
    return ""


def test_the_hosts_unit_is_its_own(host: Simulated, tmp_path: Path) -> None:
    host.run()
    assert refused(tmp_path) == ""


@pytest.mark.parametrize("group", [f"/user.slice/user-1000.slice/a:{SERVICE}", f"/kubepods.slice{SERVICE}"])
def test_a_group_that_is_named_like_the_units_is_another_one(host: Simulated, tmp_path: Path, group: str) -> None:
    """Whoever was given a part of the tree of groups names folders in it, also with colons."""
    host.run(group)
    assert "another one runs in" in refused(tmp_path)
