"""The root of the image depends on what it is made of, and on nothing else."""

from __future__ import annotations

import os
import tarfile
from typing import TYPE_CHECKING

import pytest

from tasks.errors import TaskError
from tasks.image import root

if TYPE_CHECKING:
    from pathlib import Path

LIBRARY = f"{root.HOME}/lib"


def make(folder: Path, *, when: int) -> tuple[Path, Path]:
    tree, site = folder / "tree", folder / "site"
    for name, text in {
        "usr/bin/python3.13": "elf",
        "usr/share/doc/libc6/copyright": "GPL",
        "usr/share/doc/libc6/changelog.gz": "long",
        "usr/share/locale/de/x.mo": "Übersetzung",
        "usr/share/ca-certificates/mozilla/A.crt": "A\n",
        "usr/share/ca-certificates/mozilla/B.crt": "B\n",
    }.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (when, when))
    tree.joinpath("bin").symlink_to("usr/bin")
    os.link(tree / "usr/bin/python3.13", tree / "usr/bin/python3")
    site.joinpath("provision").mkdir(parents=True)
    site.joinpath("provision", "__init__.py").write_text("")
    return tree, site


def test_the_same_files_give_the_same_bytes_whenever_they_were_unpacked(tmp_path: Path) -> None:
    packed = []
    for number, when in enumerate((1_000_000, 2_000_000)):
        folder = tmp_path / str(number)
        tree, site = make(folder, when=when)
        root.pack(tree, ((LIBRARY, site),), folder / "root.tar")
        packed.append((folder / "root.tar").read_bytes())

    assert packed[0] == packed[1]


def test_the_image_has_what_runs_and_no_documents(tmp_path: Path) -> None:
    tree, site = make(tmp_path, when=0)
    root.pack(tree, ((LIBRARY, site),), tmp_path / "root.tar")

    with tarfile.open(tmp_path / "root.tar") as packed:
        members = {member.name: member for member in packed}
        certificates = packed.extractfile("etc/ssl/certs/ca-certificates.crt")
        assert certificates is not None
        assert certificates.read() == b"A\nB\n"

    assert "opt/grapnel/lib/provision/__init__.py" in members
    assert "usr/share/doc/libc6/copyright" in members
    assert not any("locale" in name or "changelog" in name for name in members)
    assert members["usr/bin/python3"].isreg()
    assert members["usr/bin/grapnel"].linkname == "/opt/grapnel/lib/bin/grapnel"
    assert members["tmp"].mode == 0o1777
    assert {(member.uid, member.gid, member.mtime) for member in members.values()} == {(0, 0, 0)}


def test_no_path_is_there_twice_as_storage_of_podman_and_crio_refuses_that(tmp_path: Path) -> None:
    tree, site = make(tmp_path, when=0)
    for name in ("proc", "run", "tmp"):
        tree.joinpath(name).mkdir(mode=0o700)
    tmp_path.joinpath("own", "provision").mkdir(parents=True)
    folders = ((LIBRARY, site), (LIBRARY, tmp_path / "own"))
    root.pack(tree, folders, tmp_path / "root.tar")

    with tarfile.open(tmp_path / "root.tar") as packed:
        names = packed.getnames()
        mode = packed.getmember("run").mode

    assert sorted(names) == sorted(set(names))
    assert {"proc", "run", "tmp", "opt/grapnel/lib/provision"} <= set(names)
    assert mode == 0o755


def test_two_files_of_one_name_make_no_image(tmp_path: Path) -> None:
    tree, site = make(tmp_path, when=0)
    own = tmp_path / "own/provision"
    own.mkdir(parents=True)
    own.joinpath("__init__.py").write_text("other")

    with pytest.raises(TaskError, match=r"would have /opt/grapnel/lib/provision/__init__\.py twice"):
        root.pack(tree, ((LIBRARY, site), (LIBRARY, own.parent)), tmp_path / "root.tar")
