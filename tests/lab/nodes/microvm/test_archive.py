"""The archive that the kernel starts with: what goes in comes out, as root's, below the place that was asked for."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from lab.nodes.microvm.archive import pack

if TYPE_CHECKING:
    from pathlib import Path

BUSYBOX = shutil.which("busybox")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "made"
    (made / "bin").mkdir(parents=True)
    (made / "empty").mkdir()
    (made / "bin/program").write_bytes(b"#!/bin/sh\n" + b"x" * 1021)
    (made / "bin/program").chmod(0o755)
    (made / "link").symlink_to("bin/program")
    (made / "folder-link").symlink_to("bin")
    return made


@pytest.mark.skipif(BUSYBOX is None, reason="needs busybox")
def test_another_program_unpacks_what_was_packed(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    argv = [str(BUSYBOX), "cpio", "-i", "-d"]
    subprocess.run(argv, input=pack(folder, "given/deep"), cwd=out, check=True, capture_output=True)
    there = out / "given/deep"
    assert sorted(str(path.relative_to(there)) for path in there.rglob("*")) == [
        "bin",
        "bin/program",
        "empty",
        "folder-link",
        "link",
    ]
    assert (there / "bin/program").read_bytes() == (folder / "bin/program").read_bytes()
    assert (there / "bin/program").stat().st_mode & 0o777 == 0o755
    assert str((there / "link").readlink()) == "bin/program"
    assert (there / "folder-link").is_symlink()


def test_each_member_begins_where_the_kernel_looks_for_it(folder: Path) -> None:
    data, offset, names = pack(folder), 0, []
    while offset < len(data):
        assert offset % 4 == 0
        assert data[offset : offset + 6] == b"070701"
        size, name_size = int(data[offset + 54 : offset + 62], 16), int(data[offset + 94 : offset + 102], 16)
        names.append(data[offset + 110 : offset + 110 + name_size - 1].decode())
        offset += -(-(110 + name_size) // 4) * 4
        offset += -(-size // 4) * 4
    assert names == ["bin", "bin/program", "empty", "folder-link", "link", "TRAILER!!!"]
