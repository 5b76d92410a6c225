"""The declared layout as it is read: contract `docs/contracts/mig-layout`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from plugin.changes.mig_layout.document import parse_layout

CONTRACT = Path(__file__).parents[3] / "docs/contracts/mig-layout"
SCHEMA = json.loads((CONTRACT / "schema.json").read_text())


def samples(kind: str) -> list[Any]:
    return [pytest.param(path, id=path.stem) for path in sorted((CONTRACT / kind).iterdir())]


def entry(**changes: object) -> bytes:
    values = {"devices": "all", "migEnabled": True, "migDevices": {"1g.10gb": 1}, **changes}
    return json.dumps({"version": 1, "layouts": [values]}).encode()


@pytest.mark.parametrize("path", samples("good"))
def test_good_samples_are_read_and_fit_the_schema(path: Path) -> None:
    jsonschema.validate(json.loads(path.read_text()), SCHEMA)
    assert parse_layout(path.read_bytes()).entries


@pytest.mark.parametrize("path", samples("bad"))
def test_bad_samples_are_refused_by_both(path: Path) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(path.read_text()), SCHEMA)
    with pytest.raises(ValueError, match=r"."):
        parse_layout(path.read_bytes())


def test_every_device_is_one_of_what_is_wanted() -> None:
    (found,) = parse_layout(entry(migDevices={"1g.10gb": 2, "MIG 3g.40gb": 1, "2g.20gb": 0})).entries
    assert [each.name for each in found.wanted] == ["1g.10gb", "1g.10gb", "3g.40gb"]


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        pytest.param({"1g.10gb": 1, "MIG 1g.10gb": 1}, "named twice, as 1g.10gb", id="one profile in two ways"),
        pytest.param({"1g.10gb": 0}, "all numbers are 0", id="no device at all"),
        pytest.param({"1g.10gb": True}, "1g.10gb must be a whole number", id="a number that is none"),
    ],
)
def test_what_contradicts_itself_is_refused_by_name(devices: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_layout(entry(migDevices=devices))


def test_a_filter_may_name_the_subsystem() -> None:
    (found,) = parse_layout(entry(deviceFilter="0x20B010DE:0x134F10DE")).entries
    assert found.filters == ((0x20B010DE, 0x134F10DE),)
