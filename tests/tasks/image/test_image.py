"""The image of this checkout, twice."""

from __future__ import annotations

import json
import os
import tarfile
from typing import TYPE_CHECKING

import pytest

from lab.machine.folders import cache_dir
from tasks.environment import uv_path
from tasks.image import build
from tasks.progress import Progress
from tasks.release.wheel import build_wheel

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.functional, pytest.mark.skipif(os.geteuid() != 0, reason="unpacking Debian needs root")]

NAME = "docker.io/local/grapnel:twice"


@pytest.mark.timeout(900)
def test_the_same_checkout_gives_the_same_digest(tmp_path: Path) -> None:
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
    with tarfile.open(tmp_path / "second" / "image.tar") as packed:
        index = packed.extractfile("index.json")
        assert index is not None
        assert json.load(index)["manifests"][0]["digest"] == digests[0]
