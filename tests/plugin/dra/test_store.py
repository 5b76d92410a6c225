"""Files of prepared claims: the contract's samples, as they are read and written."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from plugin.dra.store import parse_record, render_record

CONTRACT = Path(__file__).parents[3] / "docs/contracts/claim"
SCHEMA = json.loads((CONTRACT / "schema.json").read_text())


def uid_of(path: Path) -> str:
    return str(json.loads(path.read_text())["uid"])


@pytest.mark.parametrize("path", sorted(CONTRACT.glob("good/*.json")), ids=lambda path: path.stem)
def test_good_samples_are_read_and_written_as_they_are(path: Path) -> None:
    jsonschema.validate(json.loads(path.read_text()), SCHEMA)
    record = parse_record(path.read_bytes(), uid_of(path))
    assert json.loads(render_record(record)) == json.loads(path.read_text())


@pytest.mark.parametrize("path", sorted(CONTRACT.glob("bad/*.json")), ids=lambda path: path.stem)
def test_bad_samples_are_refused_for_the_right_reason(path: Path) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(path.read_text()), SCHEMA)
    with pytest.raises(ValueError, match=path.with_suffix(".txt").read_text().strip()):
        parse_record(path.read_bytes(), uid_of(path))


def test_a_file_of_another_claim_is_refused() -> None:
    path = CONTRACT / "good/admin.json"
    with pytest.raises(ValueError, match="uid"):
        parse_record(path.read_bytes(), "another")
