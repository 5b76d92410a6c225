"""A wheel that has no node daemon for the image is refused before an image is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.payload.errors import PayloadError
from provision.payload.store import Manifest, ManifestFile, write_manifest
from tasks.errors import TaskError
from tasks.image import node

if TYPE_CHECKING:
    from pathlib import Path

ARCHIVE = ManifestFile(name="an-archive.tar", digest="0" * 64, size_bytes=0)


def test_a_wheel_that_was_built_without_archives_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PayloadError, match="no payload in"):
        node.unpack(tmp_path / "node", tmp_path / "tree", tmp_path / "installed")


def test_a_wheel_without_a_daemon_for_the_python_of_the_image_is_refused(tmp_path: Path) -> None:
    archives = tmp_path / "installed/provision/_payload/archives"
    archives.mkdir(parents=True)
    archives.joinpath(ARCHIVE.name).touch()
    write_manifest(archives, Manifest(hook=ARCHIVE, node={"3.11": ARCHIVE}, unit="", driver=ARCHIVE))

    with pytest.raises(TaskError, match=r"the wheel has no node daemon for Python 3\.13"):
        node.unpack(tmp_path / "node", tmp_path / "tree", tmp_path / "installed")
