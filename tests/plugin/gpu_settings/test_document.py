"""The declared settings as they are read: contract `docs/contracts/gpu-settings`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from plugin.changes.gpu_settings.document import SCHEMA, parse_settings, parse_values, values_to_json
from plugin.driver.gpu_settings import Setting

CONTRACT = Path(__file__).parents[3] / "docs/contracts/gpu-settings"
SCHEMA_OF_FILES = json.loads((CONTRACT / "schema.json").read_text())


def samples(kind: str) -> list[Any]:
    return [pytest.param(path, id=path.stem) for path in sorted((CONTRACT / kind).iterdir())]


@pytest.mark.parametrize("path", samples("good"))
def test_good_samples_are_read_and_fit_the_schema(path: Path) -> None:
    jsonschema.validate(json.loads(path.read_text()), SCHEMA_OF_FILES)
    parse_settings(path.read_bytes())


@pytest.mark.parametrize("path", samples("bad"))
def test_bad_samples_are_refused_by_both(path: Path) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(path.read_text()), SCHEMA_OF_FILES)
    with pytest.raises(ValueError, match=r"."):
        parse_settings(path.read_bytes())


def test_clocks_that_end_before_they_begin_are_refused_by_name() -> None:
    entry = {"devices": "all", "graphicsClockMHz": {"min": 1410, "max": 900}}
    with pytest.raises(ValueError, match="graphicsClockMHz must have a min that is not above its max"):
        parse_settings(json.dumps({"schema": SCHEMA, "settings": [entry]}).encode())


def test_values_are_written_as_they_are_read() -> None:
    told = {"persistenceMode": True, "powerLimitWatts": 300, "graphicsClockMHz": {"min": 900, "max": 1200}}
    values = parse_values(told)
    assert values[Setting.POWER] == 300_000
    assert values_to_json(values) == told
