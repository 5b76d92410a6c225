from __future__ import annotations

import hashlib
import io
import json
import tarfile
from typing import Any

import pytest

from lab.images.content import file, pack
from lab.images.layout import image_archive

NAME = "docker.io/local/sample:1"
LAYER = pack({"etc/file": file(b"x")})


@pytest.fixture
def files() -> dict[str, bytes]:
    packed = image_archive(NAME, LAYER, {"Env": ["A=1"]})
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        return {member.name: content.read() for member in archive if (content := archive.extractfile(member))}


def _blob(files: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    data = files["blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")]
    assert len(data) == descriptor["size"]
    return data


def test_every_blob_is_named_by_its_digest(files: dict[str, bytes]) -> None:
    blobs = {name: data for name, data in files.items() if name.startswith("blobs/")}
    assert len(blobs) == 3
    assert all(name == f"blobs/sha256/{hashlib.sha256(data).hexdigest()}" for name, data in blobs.items())


def test_the_index_leads_to_layer_and_configuration(files: dict[str, bytes]) -> None:
    (entry,) = json.loads(files["index.json"])["manifests"]
    manifest = json.loads(_blob(files, entry))
    config = json.loads(_blob(files, manifest["config"]))
    assert _blob(files, manifest["layers"][0]) == LAYER
    assert config["config"] == {"Env": ["A=1"]}
    assert config["rootfs"]["diff_ids"] == [manifest["layers"][0]["digest"]]


def test_engines_find_the_name(files: dict[str, bytes]) -> None:
    (entry,) = json.loads(files["index.json"])["manifests"]
    assert set(entry["annotations"].values()) == {NAME}


def test_the_same_content_makes_the_same_archive() -> None:
    assert image_archive(NAME, LAYER, {"b": 1, "a": 2}) == image_archive(NAME, LAYER, {"a": 2, "b": 1})
