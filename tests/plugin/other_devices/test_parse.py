from __future__ import annotations

import json
import os
from pathlib import Path

import jsonschema
import pytest

from plugin.base.errors import ConfigError
from plugin.devices.other.device_class import Division
from plugin.devices.other.files import read_classes
from plugin.devices.other.parse import parse_class

ROOT = Path(__file__).parents[3]
CONTRACT = ROOT / "docs/contracts/device-class"
SCHEMA = json.loads((CONTRACT / "schema.json").read_text())
READY = sorted((ROOT / "deploy/devices").glob("*.json"))
GOOD = sorted(CONTRACT.glob("good/*.json"))
BAD = sorted(CONTRACT.glob("bad/*.json"))
BEYOND_A_SCHEMA = {"node-with-unknown-variable"}  # which variables there are, another key of the file says


@pytest.mark.slow
@pytest.mark.parametrize("path", [*GOOD, *READY], ids=lambda path: path.stem)
def test_good_samples_and_ready_files_are_read_and_fit_the_schema(path: Path) -> None:
    jsonschema.validate(json.loads(path.read_text()), SCHEMA)
    assert parse_class(path.read_bytes(), path.stem, str(path)).name == path.stem


@pytest.mark.slow
@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad_samples_are_refused_for_the_right_reason(path: Path) -> None:
    if path.stem not in BEYOND_A_SCHEMA:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(json.loads(path.read_text()), SCHEMA)
    with pytest.raises(ConfigError) as raised:
        parse_class(path.read_bytes(), path.stem, str(path))
    assert path.with_suffix(".txt").read_text().strip() in raised.value.message
    assert str(path) in raised.value.message


def test_there_are_samples_of_all_kinds() -> None:
    assert len(GOOD) >= 3
    assert len(BAD) >= 20
    assert len(READY) >= 8


def test_every_ready_file_has_a_resource_and_a_name_of_its_own() -> None:
    classes = read_classes(ROOT / "deploy/devices")
    assert classes.problems == {}
    assert len({each.resource for each in classes.classes.values()}) == len(READY)
    assert {each.name for each in classes.classes.values()} == {path.stem for path in READY}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("Card", "small letters", id="capitals"),
        pytest.param("a" * 41, "1 to 40", id="too long"),
        pytest.param("a::b", "small letters", id="what ids are made with"),
    ],
)
def test_the_name_of_a_file_begins_ids_and_is_small(name: str, message: str) -> None:
    document = json.dumps(
        {"schema": SCHEMA["properties"]["schema"]["const"], "resource": "a.b/c", "unit": {"count": 1}}
    )
    with pytest.raises(ConfigError, match=message):
        parse_class(document, name, "here")


def test_everything_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        parse_class('{"unit": 3, "nodes": {}, "x": 1}', "card", "here")
    for words in ("schema", "resource", "unit", "nodes", "'x'"):
        assert words in raised.value.message


def _write(folder: Path, name: str, **keys: object) -> None:
    document = {"schema": "grapnel.dev/device-class/v1alpha1", "resource": f"example.com/{name}", **keys}
    (folder / f"{name}.json").write_text(json.dumps(document))


def test_one_bad_file_leaves_the_others_alone(tmp_path: Path) -> None:
    _write(tmp_path, "one", unit={"count": 2})
    _write(tmp_path, "two", unit={"count": 0})
    (tmp_path / "three.json.bak").write_text("{")
    (tmp_path / ".four.json").write_text("{")
    found = read_classes(tmp_path)
    assert list(found.classes) == ["one"]
    assert found.classes["one"].unit.division is Division.COUNT
    assert list(found.problems) == [str(tmp_path / "two.json")]


def test_a_file_that_became_bad_counts_as_it_was(tmp_path: Path) -> None:
    _write(tmp_path, "one", unit={"count": 2})
    before = read_classes(tmp_path)
    (tmp_path / "one.json").write_text("{")
    after = read_classes(tmp_path, before.classes)
    assert after.classes == before.classes
    assert "it counts as it was before" in after.problems[str(tmp_path / "one.json")]


def test_a_file_that_is_gone_takes_its_class_along(tmp_path: Path) -> None:
    _write(tmp_path, "one", unit={"count": 2})
    before = read_classes(tmp_path)
    (tmp_path / "one.json").unlink()
    assert read_classes(tmp_path, before.classes).classes == {}


def test_a_folder_that_is_not_there_has_no_classes(tmp_path: Path) -> None:
    assert read_classes(tmp_path / "devices.d") == ({}, {})


def test_too_many_files_are_told_of(tmp_path: Path) -> None:
    for number in range(70):
        _write(tmp_path, f"card-{number:02}", unit={"count": 1})
    found = read_classes(tmp_path)
    assert len(found.classes) == 64
    assert "70 files" in found.problems[str(tmp_path)]


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "card.json"
    if kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    assert str(path) in read_classes(tmp_path).problems
