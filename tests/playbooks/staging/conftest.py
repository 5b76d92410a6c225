"""A fake node for the tests of staging."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.playbooks.staging.node import Node
from tests.playbooks.staging.sets import NEW, OLD

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node without a driver, whose sources have two."""
    offered = {name: [NEW, OLD] for name in ("libcuda1", "nvidia-dkms")}
    return Node(tmp_path, offered={**offered, "glx": ["1.2"]}, needs={"libcuda1": ("glx",)})
