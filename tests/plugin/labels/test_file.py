"""The file that Node Feature Discovery reads."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from plugin.publication.labels.file import remove_labels, write_labels

if TYPE_CHECKING:
    from pathlib import Path

LABELS = {"nvidia.com/gpu.count": "2", "nvidia.com/gpu.sharing-strategy": ""}


def test_the_file_has_a_label_a_line_and_anybody_may_read_it(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        assert write_labels(tmp_path / "gfd", LABELS)
    finally:
        os.umask(before)
    assert (tmp_path / "gfd").read_text() == "nvidia.com/gpu.count=2\nnvidia.com/gpu.sharing-strategy=\n"
    assert stat.S_IMODE((tmp_path / "gfd").stat().st_mode) == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["gfd"]


def test_the_same_labels_leave_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "gfd"
    write_labels(path, LABELS)
    inode = path.stat().st_ino
    assert not write_labels(path, LABELS)
    assert path.stat().st_ino == inode


def test_other_labels_are_another_file_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "gfd"
    write_labels(path, LABELS)
    with path.open() as reader:
        assert write_labels(path, {"nvidia.com/gpu.count": "3"})
        assert reader.read().startswith("nvidia.com/gpu.count=2")
    assert path.read_text() == "nvidia.com/gpu.count=3\n"


def test_no_labels_are_no_file(tmp_path: Path) -> None:
    path = tmp_path / "gfd"
    write_labels(path, LABELS)
    assert write_labels(path, {})
    assert not path.exists()
    assert not write_labels(path, {})
    assert not remove_labels(path)


def test_a_file_that_is_no_text_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "gfd").write_bytes(b"\xff")
    assert write_labels(tmp_path / "gfd", LABELS)


@pytest.mark.parametrize("path", ["absent/gfd", "folder"])
def test_what_cannot_be_written_is_an_error_and_leaves_nothing(tmp_path: Path, path: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=r".*"):
        write_labels(tmp_path / path, LABELS)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_temporary_file_of_a_killed_process_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / ".gfd.new").write_text("half")
    write_labels(tmp_path / "gfd", LABELS)
    assert [path.name for path in tmp_path.iterdir()] == ["gfd"]
