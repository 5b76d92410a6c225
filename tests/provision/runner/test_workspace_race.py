"""Runs that begin at the same moment leave one another's folders alone."""

from __future__ import annotations

import fcntl
import tempfile
from typing import TYPE_CHECKING

from provision.apply.runner import workspace

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_folder_whose_lock_is_about_to_be_taken_is_not_taken_for_abandoned(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    taken = fcntl.flock

    def flock(file: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX:  # another run begins just before
            workspace._remove_abandoned(tmp_path)
        taken(file, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    playbook = tmp_path / "play.yml"
    playbook.write_text("[]")

    with workspace.open_workspace(playbook, None) as made:
        workspace._remove_abandoned(tmp_path)
        assert made.playbook.is_file()
    assert not made.root.exists()
