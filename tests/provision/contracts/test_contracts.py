"""Formats that the planner owns: schemas follow the types, good samples pass, bad ones are refused with their path."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import jsonschema
import msgspec
import pytest

from provision.fleet.errors import FactsError
from provision.fleet.facts import parse_facts
from provision.planner.model import decode_plan, encode_plan
from provision.spec.model import StackSpec
from tests.provision.contracts.schemas import CONTRACTS, TYPES, render_schema
from tests.provision.samples import as_json, configured, make_facts, plan

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

GOOD = {name: sorted(CONTRACTS.joinpath(name, "good").glob("*.json")) for name in TYPES}
BAD = {name: sorted(CONTRACTS.joinpath(name, "bad").glob("*.json")) for name in TYPES}


def samples(kind: Mapping[str, list[Path]], name: str) -> pytest.MarkDecorator:
    assert kind[name]
    return pytest.mark.parametrize("sample", kind[name], ids=lambda path: path.stem)


@pytest.mark.parametrize("name", TYPES)
def test_the_schema_is_the_types(name: str) -> None:
    stored = json.loads(CONTRACTS.joinpath(name, "schema.json").read_text())

    assert stored == render_schema(name), "run: python tests/provision/contracts/schemas.py"


@pytest.mark.parametrize("sample", [path for paths in GOOD.values() for path in paths], ids=lambda path: path.stem)
def test_good_samples_follow_the_schema(sample: Path) -> None:
    jsonschema.validate(json.loads(sample.read_text()), render_schema(sample.parents[1].name))


@pytest.mark.parametrize("sample", [path for paths in BAD.values() for path in paths], ids=lambda path: path.stem)
def test_bad_samples_do_not(sample: Path) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(sample.read_text()), render_schema(sample.parents[1].name))


@samples(GOOD, "node-facts")
def test_good_facts_are_read_and_planned_for(sample: Path) -> None:
    facts = parse_facts(sample.read_bytes())

    version = "535.309.01" if "bookworm" in sample.stem else "550.163.01"
    assert plan(facts, msgspec.convert({"driver": {"version": version}}, StackSpec)).problems == ()


@samples(BAD, "node-facts")
def test_bad_facts_name_node_and_path(sample: Path) -> None:
    expected = {
        "hold-is-a-word": "facts of n1: expected `bool`, got `str` - at `$.packages[...].hold`",
        "on-disk-is-a-number": "facts of n1: expected `str | null`, got `float` - at `$.module.on_disk`",
        "schema-of-the-future": "facts of n1: invalid enum value 'grapnel.dev/facts/v2' - at `$.schema`",
        "without-node": "facts of n7: object missing required field `node`",
    }

    with pytest.raises(FactsError) as raised:
        parse_facts(sample.read_bytes(), node="n7" if sample.stem == "without-node" else "")

    assert raised.value.message == expected[sample.stem]
    assert raised.value.hint


@samples(GOOD, "node-plan")
def test_good_plans_are_read_and_written_back(sample: Path) -> None:
    read = decode_plan(sample.read_bytes())

    assert json.loads(encode_plan(read)) == json.loads(sample.read_text())


@samples(BAD, "node-plan")
def test_bad_plans_are_refused(sample: Path) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_plan(sample.read_bytes())


def test_plans_follow_their_schema() -> None:
    for current in (plan(make_facts()), plan(configured())):
        jsonschema.validate(json.loads(encode_plan(current)), render_schema("node-plan"))


def test_what_a_newer_module_says_besides_is_ignored() -> None:
    newer = as_json(configured()) | {"weather": "fine"}
    newer["node"]["rack"] = "b7"

    assert parse_facts(newer) == configured()


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"null", b'{"node": 3}'])
def test_nonsense_is_an_error_and_not_a_crash(text: bytes) -> None:
    with pytest.raises(FactsError, match="facts of n9: "):
        parse_facts(text, node="n9")
