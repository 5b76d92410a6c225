"""The images themselves, made of real packages."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from lab import images
from lab.images.content import pack
from lab.images.errors import ImageError
from lab.images.recipes import RECIPES

if TYPE_CHECKING:
    from pathlib import Path


def test_an_archive_is_made_once() -> None:
    first = images.archive("pause")
    made = first.stat().st_mtime_ns
    assert images.archive("pause").stat().st_mtime_ns == made


@pytest.mark.slow
def test_a_compiled_image_is_the_same_each_time() -> None:
    recipe = RECIPES["pause"]
    assert pack(recipe.files({})) == pack(recipe.files({}))


def test_an_unknown_image_is_refused_with_what_there_is() -> None:
    with pytest.raises(ImageError, match="no image absent") as caught:
        images.reference("absent")
    assert "gpu-shell" in caught.value.hint


@pytest.mark.functional
@pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root")
def test_the_shell_runs_in_its_files(tmp_path: Path) -> None:
    images.rootfs("gpu-shell", tmp_path / "root")
    command = ["chroot", str(tmp_path / "root"), "/bin/sh", "-c", "cat /etc/debian_version; ls -d /tmp"]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "13.0\n/tmp\n"


@pytest.mark.functional
@pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root")
def test_the_c_library_s_loader_works(tmp_path: Path) -> None:
    images.rootfs("gpu-shell", tmp_path / "root")
    command = [
        "chroot",
        str(tmp_path / "root"),
        "/lib64/ld-linux-x86-64.so.2",
        "--list",
        "/lib/x86_64-linux-gnu/libm.so.6",
    ]
    assert (
        "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6"
        in subprocess.run(command, check=True, capture_output=True, text=True).stdout
    )
