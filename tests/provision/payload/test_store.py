"""A payload that is not there, or not whole, says how to build it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from provision.planning.supply.payload.errors import PayloadError
from provision.planning.supply.payload.store import load_payload, payload_folder

MANIFEST = {
    "schema": "grapnel.dev/payload/v1alpha1",
    "hook": {"name": "hook-aa.tar", "digest": "aa" * 32, "size_bytes": 4},
    "driver": {"name": "driver-cc.tar", "digest": "cc" * 32, "size_bytes": 3},
    "node": {"3.10": {"name": "node-bb.tar", "digest": "bb" * 32, "size_bytes": 5}},
    "unit": "[Unit]\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "manifest.json").write_text(json.dumps(MANIFEST))
    (tmp_path / "hook-aa.tar").write_text("1234")
    (tmp_path / "driver-cc.tar").write_text("123")
    (tmp_path / "node-bb.tar").write_text("12345")
    return tmp_path


def test_a_whole_payload_is_read(folder: Path) -> None:
    payload = load_payload(folder)

    assert payload.hook.path == str(folder / "hook-aa.tar")
    assert payload.hook.digest[:12] == "aaaaaaaaaaaa"
    assert payload.driver.digest == "cc" * 32
    assert payload.node.digest == "bb" * 32
    assert payload.unit == "[Unit]\n"


def test_an_absent_payload_says_how_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(PayloadError) as raised:
        load_payload(tmp_path / "none")

    assert raised.value.message == f"no payload in {tmp_path}/none"
    assert raised.value.hint == f"build it: python -m provision.planning.supply.payload build --output {tmp_path}/none"


def test_a_missing_archive_is_named(folder: Path) -> None:
    (folder / "hook-aa.tar").unlink()

    with pytest.raises(PayloadError, match=r"hook-aa\.tar is missing"):
        load_payload(folder)


def test_a_cut_off_archive_is_named(folder: Path) -> None:
    (folder / "node-bb.tar").write_text("1")

    with pytest.raises(PayloadError, match=r"node-bb\.tar has 1 bytes, not 5"):
        load_payload(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "grapnel.dev/payload/v1alpha1"}'])
def test_a_broken_manifest_is_named(text: str, folder: Path) -> None:
    (folder / "manifest.json").write_text(text)

    with pytest.raises(PayloadError, match=r"manifest\.json: "):
        load_payload(folder)


def test_the_payload_is_in_the_user_s_cache() -> None:
    assert payload_folder({"XDG_CACHE_HOME": "/c"}) == Path("/c/grapnel/payload")
    assert payload_folder({"HOME": "/home/a"}) == Path("/home/a/.cache/grapnel/payload")
