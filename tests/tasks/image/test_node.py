"""A wheel that has no node daemon is refused before an image is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.planning.supply.payload.errors import PayloadError
from tasks.image import node

if TYPE_CHECKING:
    from pathlib import Path


def test_a_wheel_that_was_built_without_archives_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PayloadError, match="no payload in"):
        node.unpack(tmp_path / "node", tmp_path / "tree", tmp_path / "installed")
