"""Makes the collection importable under its own name, without Ansible."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.playbooks.fakes import Machine

PLAYBOOKS = Path(__file__).parents[2] / "playbooks"

sys.path.append(str(PLAYBOOKS / "collections"))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A fake machine of files below a folder, whose commands return prepared answers."""
    return Machine(tmp_path)
