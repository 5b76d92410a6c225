"""What tests of runfiles share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.provision.runfile.workbench import Workbench

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench(tmp_path)
