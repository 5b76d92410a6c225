"""An image is the same bytes whenever it is written, in the layout that engines read."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from tasks.image.archive import write_archive

if TYPE_CHECKING:
    from pathlib import Path

NAME = "docker.io/local/grapnel:1"
CONFIG = {"Entrypoint": ["/usr/bin/grapnel"], "User": "65532:65532"}


def blobs(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as packed:
        return {member.name: file.read() for member in packed if (file := packed.extractfile(member))}


@pytest.mark.parametrize("level", [0, 6])
def test_the_same_root_gives_the_same_digest(level: int, tmp_path: Path) -> None:
    root = tmp_path / "root.tar"
    root.write_bytes(b"a tar" * 10_000)

    first = write_archive(root, CONFIG, NAME, tmp_path / "1.tar", level=level)
    second = write_archive(root, CONFIG, NAME, tmp_path / "2.tar", level=level)

    assert first.digest == second.digest
    assert first.archive.read_bytes() == second.archive.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.tar", "2.tar", "root.tar"]


@pytest.mark.parametrize("level", [0, 6])
def test_every_digest_is_that_of_its_blob(level: int, tmp_path: Path) -> None:
    root = tmp_path / "root.tar"
    root.write_bytes(b"a tar" * 10_000)
    built = write_archive(root, CONFIG, NAME, tmp_path / "image.tar", level=level)

    files = blobs(built.archive)
    index: dict[str, Any] = json.loads(files["index.json"])
    stored = {name.rpartition("/")[2]: data for name, data in files.items() if name.startswith("blobs/")}
    assert all(hashlib.sha256(data).hexdigest() == name for name, data in stored.items())
    (entry,) = index["manifests"]
    assert entry["digest"] == built.digest
    assert entry["annotations"]["io.containerd.image.name"] == NAME
    manifest = json.loads(stored[entry["digest"].removeprefix("sha256:")])
    config = json.loads(stored[manifest["config"]["digest"].removeprefix("sha256:")])
    layer = stored[manifest["layers"][0]["digest"].removeprefix("sha256:")]
    assert len(layer) == manifest["layers"][0]["size"] == built.layer_bytes
    plain = gzip.GzipFile(fileobj=io.BytesIO(layer)).read() if level else layer
    assert plain == root.read_bytes()
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(plain).hexdigest()}"]
    assert config["config"] == CONFIG
