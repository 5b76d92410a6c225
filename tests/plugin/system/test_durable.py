"""Reading a file that may be anything."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from plugin.base.errors import ConfigError, HealthError, HistoryError
from plugin.changes.driver_change.release.store import read_release
from plugin.devices.health.store import read_verdicts
from plugin.holdings.history.store import append_history, read_history
from plugin.settings.node_config import read_config
from plugin.settings.nvidia.yaml_file import read_document
from plugin.system.durable import read_bounded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    assert (read_bounded(path, 4), read_bounded(path, 40)) == (b"0123", b"0123456789")


def make_folder(path: Path) -> None:
    path.mkdir()


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [make_folder, make_pipe, make_endless])
def test_what_may_never_end_is_an_error_at_once(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """A pipe in place of node.json made the daemon wait in its event loop: no kubelet was served any more."""
    for name in ("node.json", "config.yaml", "released.json", "verdicts.json", "history.jsonl"):
        make(tmp_path / name)
    with pytest.raises(OSError, match=r"not a regular file|Is a directory"):
        read_bounded(tmp_path / "node.json", 10)
    with pytest.raises(ConfigError):
        read_config(tmp_path / "node.json")
    with pytest.raises(ConfigError):
        read_document(tmp_path / "config.yaml")
    with pytest.raises(HealthError):
        read_verdicts(tmp_path)
    with pytest.raises(HistoryError):
        read_history(tmp_path)
    with pytest.raises(OSError, match=r"No such device|Is a directory|somebody else wrote"):
        append_history(tmp_path, (), 100)
    release = read_release(tmp_path)
    assert release is not None
    assert release.problem
