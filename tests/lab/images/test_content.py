from __future__ import annotations

import io
import stat
import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest

from lab.images.content import directory, file, from_package, link, pack, unpack, with_parents
from lab.images.errors import ImageError

if TYPE_CHECKING:
    from pathlib import Path

TREE = {"usr/bin/sh": link("busybox"), "usr/bin/busybox": file(b"program", 0o755), "tmp": directory(0o1777)}


def test_parents_are_made_before_their_children() -> None:
    assert list(with_parents(TREE)) == ["tmp", "usr", "usr/bin", "usr/bin/busybox", "usr/bin/sh"]


def test_the_order_in_which_a_tree_was_made_does_not_show() -> None:
    assert pack(TREE) == pack(dict(reversed(TREE.items())))


def test_a_packed_tree_has_no_traces_of_time_and_builder() -> None:
    with tarfile.open(fileobj=io.BytesIO(pack(TREE))) as archive:
        assert {(member.mtime, member.uid, member.gid, member.uname) for member in archive} == {(0, 0, 0, "")}


def test_an_unpacked_tree_is_what_was_described(tmp_path: Path) -> None:
    unpack(TREE, tmp_path / "root")
    assert (tmp_path / "root/usr/bin/sh").read_bytes() == b"program"
    assert stat.S_IMODE((tmp_path / "root/usr/bin/busybox").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "root/tmp").stat().st_mode) == 0o1777


@pytest.fixture
def deb(tmp_path: Path) -> Path:
    """Make a package with files in old places, a link and something that nobody wants."""
    source = tmp_path / "source"
    (source / "DEBIAN").mkdir(parents=True)
    (source / "DEBIAN/control").write_text(
        "Package: sample\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@localhost>\nDescription: sample\n"
    )
    (source / "lib").mkdir()
    (source / "lib/libx.so.1").write_bytes(b"library")
    (source / "lib/libx.so").symlink_to("libx.so.1")
    (source / "usr/share/doc").mkdir(parents=True)
    (source / "usr/share/doc/readme").write_text("words")
    command = ["dpkg-deb", "--root-owner-group", "--build", str(source), str(tmp_path / "sample.deb")]
    subprocess.run(command, check=True, capture_output=True)
    return tmp_path / "sample.deb"


def test_wanted_files_of_a_package_come_to_merged_usr(deb: Path) -> None:
    tree = from_package(deb, lambda path: path.startswith("usr/lib/"))
    assert tree == {"usr/lib/libx.so.1": file(b"library"), "usr/lib/libx.so": link("libx.so.1")}


def test_a_broken_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.deb").write_bytes(b"nothing")
    with pytest.raises(ImageError, match=r"broken\.deb"):
        from_package(tmp_path / "broken.deb", lambda _: True)
