"""The file that describes a fleet to simulate: its schema, and samples that are accepted or refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from provision.declaration.spec.errors import DeclarationError
from provision.rollout.model import Phase
from provision.rollout.simulate.fleet_file import load_scenario, share_of
from provision.rollout.simulate.fleet_schema import render_schema
from provision.rollout.simulate.scenario import Spread

CONTRACT = Path(__file__).parents[3] / "docs" / "contracts" / "simulation-fleet"
START = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
GOOD = sorted(CONTRACT.joinpath("good").glob("*.yaml"))
BAD = sorted(CONTRACT.joinpath("bad").glob("*.yaml"))


def test_the_schema_is_the_types() -> None:
    stored = CONTRACT.joinpath("schema.json").read_text()
    assert stored == render_schema(), "run: python -m provision.rollout.simulate.fleet_schema > that file"
    assert json.loads(stored)["$ref"] == "#/$defs/SimulatedFleet"


@pytest.mark.parametrize("sample", GOOD, ids=lambda path: path.stem)
def test_good_samples_are_read(sample: Path) -> None:
    assert load_scenario(sample, START).nodes


@pytest.mark.parametrize("sample", BAD, ids=lambda path: path.stem)
def test_bad_samples_are_refused_with_every_error_and_its_place(sample: Path) -> None:
    with pytest.raises(DeclarationError) as refused:
        load_scenario(sample, START)
    told = [
        f"{each.place.line}:{each.place.column} {each.key}: {each.message}; {each.hint}"
        for each in refused.value.findings
    ]
    assert told == sample.with_suffix(".expected").read_text().splitlines()


def test_counted_nodes_have_numbers_of_one_width() -> None:
    names = [node.name for node in load_scenario(CONTRACT / "good" / "two-racks.yaml", START).nodes]
    assert (names[0], names[29], names[30], len(names)) == ("a01", "a30", "b01", 60)


def test_what_is_not_described_is_usual() -> None:
    scenario = load_scenario(CONTRACT / "good" / "two-racks.yaml", START)
    assert scenario.durations == {
        Phase.SWAP: Spread(80.0, 200.0),
        Phase.VERIFY: Spread(measured=(12.0, 14.0, 19.0, 45.0)),
    }
    assert scenario.faults.swap == share_of("1%") == 0.01


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(DeclarationError, match=r"nowhere\.yaml cannot be read: no such file"):
        load_scenario(Path("nowhere.yaml"), START)
