"""The formats of a node's comparison: samples, and what is written."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from plugin.drift.model import Difference, DriftKind, parse_declared
from plugin.drift.result import Result, Verdict, parse_result, render_result

CONTRACTS = Path(__file__).parents[3] / "docs/contracts"
DECLARED, RESULT = CONTRACTS / "declared", CONTRACTS / "node-drift"
SCHEMA = json.loads((RESULT / "schema.json").read_text())


def samples(folder: Path, kind: str) -> pytest.MarkDecorator:
    paths = sorted((folder / kind).glob("*.json"))
    assert len(paths) >= 3
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.stem)


@samples(DECLARED, "good")
def test_good_records_are_read_whole(path: Path) -> None:
    said, read = json.loads(path.read_text()), parse_declared(path.read_bytes())

    assert [vars(each) for each in read.packages] == said["packages"]
    assert [vars(each) for each in read.files] == [{"mark": "", **each} for each in said["files"]]
    assert (list(read.units), read.module or None, read.software) == (said["units"], said["module"], said["software"])


@samples(DECLARED, "bad")
def test_bad_records_are_refused(path: Path) -> None:
    with pytest.raises(ValueError, match=r"must|missing|schema"):
        parse_declared(path.read_bytes())


@samples(RESULT, "good")
def test_good_results_are_read_and_written_again_as_they_are(path: Path) -> None:
    jsonschema.validate(json.loads(path.read_text()), SCHEMA)
    assert json.loads(render_result(parse_result(path.read_bytes()))) == json.loads(path.read_text())


@samples(RESULT, "bad")
def test_bad_results_are_refused_by_both(path: Path) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(path.read_text()), SCHEMA)
    with pytest.raises(ValueError, match=r"must|missing|schema|reason"):
        parse_result(path.read_bytes())


def test_a_kind_of_a_later_version_is_left_out() -> None:
    difference = Difference(DriftKind.FILE, "/etc/a", "absent", "there", None, "grapnel apply")
    text = render_result(Result(7, (difference, difference))).replace('"file"', '"weather"', 1)

    assert parse_result(text.encode()) == Result(7, (difference,))


@pytest.mark.parametrize(
    ("result", "verdict"),
    [
        pytest.param(Result(1), Verdict.AS_DECLARED, id="nothing differs"),
        pytest.param(Result(1, reason="a driver change"), Verdict.NOT_COMPARED, id="a change is at work"),
        pytest.param(
            Result(1, (Difference(DriftKind.HOLD, "a", "b", "c", None, "d"),)), Verdict.DRIFTED, id="a hold is off"
        ),
    ],
)
def test_a_result_follows_its_schema(result: Result, verdict: Verdict) -> None:
    jsonschema.validate(json.loads(render_result(result)), SCHEMA)
    assert result.verdict is verdict
