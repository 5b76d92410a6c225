"""What a package file says of itself is read here as dpkg-deb reads it."""

from __future__ import annotations

import io
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.control import ask_control, read_control

if TYPE_CHECKING:
    from pathlib import Path

    from tests.playbooks.fakes import Machine

CONTROL = "Package: libcuda1\nVersion: 550-1\nArchitecture: amd64\nMaintainer: N <n@example.org>\nDescription: a\n ö\n"

needs_dpkg = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed")


def build(folder: Path, compression: str) -> Path:
    (folder / "made" / "DEBIAN").mkdir(parents=True)
    (folder / "made" / "DEBIAN" / "control").write_text(CONTROL)
    argv = [
        "dpkg-deb",
        f"-Z{compression}",
        "--uniform-compression",
        "--root-owner-group",
        "--build",
        "made",
        "made.deb",
    ]
    subprocess.run(argv, cwd=folder, check=True, capture_output=True)
    return folder / "made.deb"


@needs_dpkg
@pytest.mark.parametrize("compression", ["xz", "gzip", "none"])
def test_control_is_what_dpkg_deb_prints(tmp_path: Path, compression: str) -> None:
    file = build(tmp_path, compression)
    printed = subprocess.run(["dpkg-deb", "--field", str(file)], check=True, capture_output=True, text=True).stdout

    with file.open("rb") as stream:
        assert read_control(stream) == printed


@needs_dpkg
def test_dpkg_deb_is_asked_for_what_is_not_read_here(tmp_path: Path, machine: Machine) -> None:
    packed = build(tmp_path, "zstd").read_bytes()
    machine.teach("dpkg-deb --field /set/one.deb", CONTROL)
    (machine.root / "set").mkdir(parents=True)

    for content in (packed, packed[:100], b"", b"!<arch>\nno archive" * 10):
        (machine.root / "set" / "one.deb").write_bytes(content)
        assert ask_control(machine.host, "/set/one.deb", 5).stdout == CONTROL


@needs_dpkg
def test_a_damaged_file_is_not_believed(tmp_path: Path) -> None:
    whole = build(tmp_path, "xz").read_bytes()

    for end in range(0, len(whole) - 300, 50):
        with pytest.raises((ValueError, EOFError)):
            read_control(io.BytesIO(whole[:end]))
