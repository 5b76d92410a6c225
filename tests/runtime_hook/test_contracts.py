"""The samples of both contracts, read by the hook's own parsers and held against the schemas' own words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest

from runtime_hook.base.errors import ConfigError, InventoryError
from runtime_hook.host.inventory import parse_inventory, render_inventory
from runtime_hook.inputs.config import HookConfig, load_config, parse_config

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

CONTRACTS = Path(__file__).resolve().parents[2] / "docs/contracts"


def samples(contract: str, kind: str) -> list[ParameterSet]:
    paths = sorted((CONTRACTS / contract / kind).glob("*.json"))
    assert paths
    return [pytest.param(json.loads(path.read_text(encoding="utf-8")), id=path.stem) for path in paths]


@pytest.mark.parametrize("content", samples("hook-config", "good"))
def test_good_configurations_are_read(content: object) -> None:
    assert isinstance(parse_config(content, "hook.json"), HookConfig)


@pytest.mark.slow
@pytest.mark.parametrize("content", samples("hook-config", "bad"))
def test_bad_configurations_are_refused_by_name(content: object) -> None:
    with pytest.raises(ConfigError, match=r"hook\.json"):
        parse_config(content, "hook.json")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "is_good"),
    [
        *(pytest.param(sample.values[0], True, id=f"good {sample.id}") for sample in samples("hook-config", "good")),
        *(pytest.param(sample.values[0], False, id=f"bad {sample.id}") for sample in samples("hook-config", "bad")),
    ],
)
def test_the_schema_of_the_configuration_says_the_same(content: object, *, is_good: bool) -> None:
    schema = json.loads((CONTRACTS / "hook-config/schema.json").read_text(encoding="utf-8"))
    assert jsonschema.Draft202012Validator(schema).is_valid(content) == is_good


@pytest.mark.parametrize("content", samples("inventory", "good"))
def test_good_inventories_survive_a_round_trip(content: object) -> None:
    assert render_inventory(parse_inventory(content, "inventory.json")) == content


@pytest.mark.slow
@pytest.mark.parametrize("content", samples("inventory", "good"))
def test_good_inventories_have_the_schemas_shape(content: object) -> None:
    jsonschema.validate(content, json.loads((CONTRACTS / "inventory/schema.json").read_text(encoding="utf-8")))


@pytest.mark.slow
@pytest.mark.parametrize("content", samples("inventory", "bad"))
def test_bad_inventories_have_not(content: object) -> None:
    schema = json.loads((CONTRACTS / "inventory/schema.json").read_text(encoding="utf-8"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, schema)


@pytest.mark.parametrize("content", samples("inventory", "bad"))
def test_bad_inventories_are_refused_by_name(content: object) -> None:
    with pytest.raises(InventoryError, match=r"inventory\.json"):
        parse_inventory(content, "inventory.json")


def test_the_schema_knows_exactly_the_keys_that_the_parser_knows() -> None:
    schema = json.loads((CONTRACTS / "hook-config/schema.json").read_text(encoding="utf-8"))
    everything = json.loads((CONTRACTS / "hook-config/good/everything.json").read_text(encoding="utf-8"))
    assert set(schema["properties"]) == {*everything, "schema"}


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_configuration_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "hook.json"
    path.write_text("{}")
    path.chmod(mode)
    with pytest.raises(ConfigError, match=r"hook\.json (is writable by others than root|belongs to)"):
        load_config(str(path))


def test_a_configuration_behind_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("{}")
    (tmp_path / "hook.json").symlink_to("real.json")
    with pytest.raises(ConfigError, match="cannot open"):
        load_config(str(tmp_path / "hook.json"))
