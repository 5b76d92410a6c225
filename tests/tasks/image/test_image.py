"""The image of this checkout, twice, and what it runs."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from lab.machine.folders import cache_dir
from provision import __version__
from tasks.environment import uv_path
from tasks.image import build
from tasks.progress import Progress
from tasks.release.wheel import build_wheel

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.functional, pytest.mark.skipif(os.geteuid() != 0, reason="unpacking Debian needs root")]

NAME = "docker.io/local/grapnel:twice"
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


def place(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def read(packed: tarfile.TarFile, name: str) -> dict[str, Any]:
    file = packed.extractfile(name)
    assert file is not None
    found: dict[str, Any] = json.load(file)
    return found


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_same_checkout_gives_the_same_digest_and_its_programs_run(tmp_path: Path) -> None:
    uv = uv_path(Progress(log_dir=cache_dir() / "logs"))
    digests = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        wheel = build_wheel(folder / "wheel", folder)
        built = build(wheel, uv, folder / "image.tar", NAME, level=0)
        digests.append(built.digest)
        if name == "first":
            built.archive.unlink()

    assert digests[0] == digests[1]
    with tarfile.open(built.archive) as packed:
        assert read(packed, "index.json")["manifests"][0]["digest"] == digests[0]
        (layer,) = read(packed, place(digests[0]))["layers"]
        with tarfile.open(fileobj=packed.extractfile(place(layer["digest"]))) as files:
            names = files.getnames()
            assert len(names) == len(set(names))
            files.extraction_filter = getattr(tarfile, "tar_filter", None)  # Debian 12's Python 3.11.2 has none
            for member in files:
                files.extract(member, tmp_path / "root")
    for program in ("grapnel", "grapnel-node"):
        inside = ["chroot", "--userspec=65532:65532", str(tmp_path / "root"), program, "--version"]
        done = subprocess.run(inside, env=ENVIRONMENT, check=True, capture_output=True, text=True, timeout=60)
        assert done.stdout.startswith(f"{program} {__version__}\n")
