"""What a node has collected is unpacked within bounds: a node may answer anything."""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING

import pytest

from provision.apply.collect import unpack
from provision.bundle.errors import BundleError

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w") as tar:
        for member in members:
            member.size = 1 if member.isreg() else 0
            tar.addfile(member, io.BytesIO(b"x"))
    return path


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def test_plain_files_are_unpacked(tmp_path: Path) -> None:
    archive = write(tmp_path / "a.tar", tarfile.TarInfo("change.json"), tarfile.TarInfo("packages/a_1%3a2.deb"))

    unpack(archive, tmp_path / "set")

    assert (tmp_path / "set/packages/a_1%3a2.deb").read_bytes() == b"x"


@pytest.mark.parametrize(
    "member",
    [
        tarfile.TarInfo("../escaped"),
        tarfile.TarInfo("/tmp/escaped"),
        tarfile.TarInfo("packages/.hidden"),
        special("packages/a.deb", tarfile.SYMTYPE, "/etc/passwd"),
        special("packages/a.deb", tarfile.LNKTYPE, "/etc/passwd"),
        special("packages", tarfile.DIRTYPE),
        special("null", tarfile.CHRTYPE),
    ],
    ids=["above", "absolute", "hidden", "symbolic link", "hard link", "folder", "device"],
)
def test_anything_else_is_refused(tmp_path: Path, member: tarfile.TarInfo) -> None:
    archive = write(tmp_path / "a.tar", member)

    with pytest.raises(BundleError, match="is no plain file"):
        unpack(archive, tmp_path / "set")

    assert not (tmp_path / "escaped").exists()


def test_the_same_file_twice_is_refused(tmp_path: Path) -> None:
    archive = write(tmp_path / "a.tar", tarfile.TarInfo("change.json"), tarfile.TarInfo("change.json"))

    with pytest.raises(BundleError, match="file exists"):
        unpack(archive, tmp_path / "set")


@pytest.mark.parametrize("content", [b"rubbish" * 200, b"x"], ids=["another file", "a short one"])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    archive = tmp_path / "a.tar"
    archive.write_bytes(content)

    with pytest.raises(BundleError, match="cannot be read"):
        unpack(archive, tmp_path / "set")
