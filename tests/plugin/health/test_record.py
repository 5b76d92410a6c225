"""The contract node-health, and that nothing of a state is lost in its text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from plugin.devices.health.record import (
    MAX_BYTES,
    parse_health,
    parse_verdicts,
    render_health,
    render_verdicts,
)

if TYPE_CHECKING:
    from collections.abc import Callable

CONTRACT = Path(__file__).parents[3] / "docs/contracts/node-health"
SCHEMA = json.loads((CONTRACT / "schema.json").read_text())
GOOD = sorted(CONTRACT.glob("good/*.json"))
BAD = sorted(CONTRACT.glob("bad/*.json"))


def reader(path: Path) -> Callable[[bytes], Any]:
    return parse_health if path.name.startswith("health") else parse_verdicts


@pytest.mark.slow
@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_good_samples_fit_the_schema_and_are_written_as_they_were_read(path: Path) -> None:
    document = json.loads(path.read_text())
    jsonschema.validate(document, SCHEMA)
    read = reader(path)(path.read_bytes())
    written = render_health(read) if path.name.startswith("health") else render_verdicts(read)
    for gpu in document["gpus"].values():
        gpu.pop("later", None)  # an unknown key is ignored
    assert json.loads(written) == document
    jsonschema.validate(json.loads(written), SCHEMA)


@pytest.mark.slow
@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad_samples_are_refused_for_the_right_reason(path: Path) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(path.read_text()), SCHEMA)
    with pytest.raises(ValueError, match=re.escape(path.with_suffix(".txt").read_text().strip())):
        reader(path)(path.read_bytes())


def test_there_are_samples_of_both_kinds_for_both_files() -> None:
    for start in ("health", "verdicts"):
        assert sum(path.name.startswith(start) for path in GOOD) >= 2
        assert sum(path.name.startswith(start) for path in BAD) >= 3


TWICE = (CONTRACT / "good/health-two-gpus.json").read_text().replace('"power cap"', '"xid 48"', 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "Expecting value", id="empty"),
        pytest.param(b'{"schema": "gra', "Unterminated", id="cut off"),
        pytest.param(b"\xff", "decode", id="not text"),
        pytest.param(b"[" * 100_000, "nested without end", id="nested without end"),
        pytest.param(b" " * (MAX_BYTES + 1), "larger than", id="too large"),
        pytest.param(b'{"schema": "a", "schema": "b"}', "given twice", id="a key twice"),
        pytest.param(TWICE.encode(), "names a cause twice", id="a cause twice"),
    ],
)
def test_texts_that_are_no_health(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_health(content)
