from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest

from plugin.base.errors import ExpectationError
from plugin.changes.driver_change.expectation import MAX_BYTES, Expectation, parse_expectation

if TYPE_CHECKING:
    from plugin.driver.gpu_state import MigDevice

CONTRACT = Path(__file__).parents[3] / "docs/contracts/expectation"
SCHEMA = json.loads((CONTRACT / "schema.json").read_text())
GOOD = sorted(CONTRACT.glob("good/*.json"))
BAD = sorted(CONTRACT.glob("bad/*.json"))
HEAD = '"schema": "grapnel.dev/expectation/v1alpha1", "driverVersion": "535.309.01"'
UUID = "GPU-7d00e010-ec78-5e6f-8228-fa5ab15a3109"


@pytest.mark.slow
@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_good_samples_are_read_and_fit_the_schema(path: Path) -> None:
    document = json.loads(path.read_text())
    jsonschema.validate(document, SCHEMA)
    read = parse_expectation(path.read_bytes(), path.name)
    gpus = document.get("gpus")
    expected = (document["driverVersion"], None if gpus is None else tuple(gpus), document.get("gpuCount"))
    assert (read.driver_version, read.gpus, read.gpu_count) == expected
    assert read.allocation == document.get("allocation")
    assert {uuid: layout_to_json(mig) for uuid, mig in read.mig.items()} == document.get("mig", {})
    assert {uuid: said(asdict(place)) for uuid, place in read.fabric.items()} == document.get("fabric", {})


def said(document: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in document.items() if value is not None}


def layout_to_json(mig: tuple[MigDevice, ...] | None) -> list[dict[str, object]] | None:
    return None if mig is None else [said(asdict(device)) for device in mig]


@pytest.mark.slow
@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad_samples_are_refused_for_the_right_reason(path: Path) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(path.read_text()), SCHEMA)
    with pytest.raises(ExpectationError) as raised:
        parse_expectation(path.read_bytes(), path.name)
    assert path.with_suffix(".txt").read_text().strip() in raised.value.message
    assert raised.value.message.startswith(f"{path.name}: ")


def test_there_are_samples_of_both_kinds() -> None:
    assert len(GOOD) >= 3
    assert len(BAD) >= 10


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "not valid json", id="empty"),
        pytest.param(b"{", "not valid json", id="cut off"),
        pytest.param(b"\xff{}", "not valid json", id="not text"),
        pytest.param(b"[" * 100_000, "not valid json", id="nested without end"),
        pytest.param(b" " * (MAX_BYTES + 1), "larger than", id="too large"),
        pytest.param(f'{{{HEAD}, "gpuCount": 1, "gpuCount": 2}}'.encode(), "given twice", id="a key twice"),
        pytest.param(f'{{{HEAD}, "gpus": ["{UUID}"], "gpuCount": 2}}'.encode(), "gpuCount: is 2", id="two counts"),
    ],
)
def test_texts_that_are_no_expectation(content: bytes, message: str) -> None:
    with pytest.raises(ExpectationError, match=message):
        parse_expectation(content, "standard input")


def test_everything_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ExpectationError) as raised:
        parse_expectation(b'{"gpus": 1, "gpuCount": "x", "y": 2}', "-")
    for key in ("schema", "driverVersion", "gpus", "gpuCount", '"y"'):
        assert key in raised.value.message


def test_an_expectation_says_no_more_than_it_says() -> None:
    assert parse_expectation(f"{{{HEAD}}}".encode(), "-") == Expectation("535.309.01", None, None)
