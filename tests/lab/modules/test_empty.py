"""Modules without code: whatever tools read of them is what it was."""

from __future__ import annotations

import io
import lzma
import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest

from lab.modules import empty

if TYPE_CHECKING:
    from pathlib import Path

NAME = "dkms_main_tree/6.12/x86_64/module/nvidia-modeset.ko.xz"


SOURCE = """
const char info[] __attribute__((section(".modinfo"), used)) = "license=GPL\\0version=1.2\\0depends=nvidia";
const char constants[3 << 20] = {1, 2, 3};
int probe(int at) { return constants[at]; }
"""


@pytest.fixture
def module(tmp_path: Path) -> bytes:
    """A module file with three MiB of constants."""
    source, path = tmp_path / "module.c", tmp_path / "module.ko"
    source.write_text(SOURCE)
    subprocess.run(["gcc", "-c", "-o", str(path), str(source)], check=True)
    return path.read_bytes()


def told_of(content: bytes, path: Path) -> list[str]:
    path.write_bytes(content)
    tools = (
        ["modinfo", str(path)],
        ["readelf", "--syms", "--wide", str(path)],
        ["readelf", "-p", ".modinfo", str(path)],
    )
    return [subprocess.run(argv, check=True, capture_output=True, text=True).stdout for argv in tools]


def test_what_tools_read_of_a_module_is_left(module: bytes, tmp_path: Path) -> None:
    path = tmp_path / "nvidia-modeset.ko"
    before = told_of(module, path)
    emptied = empty.without_code(module)
    assert told_of(emptied, path) == before
    assert len(emptied) < len(module) - (2 << 20)
    assert empty.without_code(module + b"signature~Module signature appended~\n").endswith(b"appended~\n")


def test_an_archive_keeps_everything_else(module: bytes, tmp_path: Path) -> None:
    files = {
        "dkms_binaries_only/PACKAGE_NAME": b"nvidia-current\n",
        NAME: lzma.compress(module, check=lzma.CHECK_CRC32),
    }
    with tarfile.open(tmp_path / "built.tar.gz", "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o640
            archive.addfile(member, io.BytesIO(content))
    empty.empty(tmp_path / "built.tar.gz", tmp_path / "emptied.tar.gz")
    with tarfile.open(tmp_path / "emptied.tar.gz") as archive:
        found = {member.name: (member.mode, archive.extractfile(member).read()) for member in archive}  # type: ignore[union-attr] # all are files
    assert found["dkms_binaries_only/PACKAGE_NAME"] == (0o640, b"nvidia-current\n")
    assert lzma.decompress(found[NAME][1]) == empty.without_code(module)
    assert list(found) == list(files)
