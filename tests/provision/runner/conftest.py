"""The stage of a test is a folder of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.provision.runner.stage import Stage

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)
