"""The contract's samples: every file in NVIDIA's form, read as the daemon reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from plugin.base.errors import ConfigError
from plugin.devices.allocation.answer import DeviceList
from plugin.settings.load import Invocation, Loaded, load
from plugin.settings.nvidia.table import HINT, SETTINGS
from plugin.settings.resolve import HINT as UNSUPPORTED_HINT
from tests.schema import require_schema

CONTRACT = Path(__file__).parents[3] / "docs/contracts/nvidia-config"
SCHEMA = json.loads((CONTRACT / "schema.json").read_text())
GOOD = sorted(CONTRACT.glob("good/*"))
BAD = sorted(CONTRACT.glob("bad/*.yaml"))
NOT_A_DOCUMENT = {"not-yaml"}
TWICE = {"key-twice"}  # which a schema cannot see
CONTRADICTIONS = {"both-ways-of-sharing", "one-name-two-meanings", "mps-of-mig"}  # each key by itself is right


@pytest.fixture
def node_json(tmp_path: Path) -> Path:
    path = tmp_path / "node.json"
    path.write_text("{}")
    return path


def load_with(node_json: Path, file: Path) -> Loaded:
    return load(Invocation(node_json, {"config-file": ("--config-file", str(file))}, {}))


@pytest.mark.slow
@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_good_samples_are_taken_and_fit_the_schema(path: Path, node_json: Path) -> None:
    content = yaml.safe_load(path.read_text())
    require_schema(content, SCHEMA)
    loaded = load_with(node_json, path)
    given = {name for name, effective in loaded.settings.items() if effective.is_given}
    assert all(loaded.settings[name].origin.startswith(str(path)) for name in given)
    assert given == set(_names(content)) & {setting.name for setting in SETTINGS}


def _names(content: object, path: str = "") -> list[str]:
    if not isinstance(content, dict):
        return []
    names = [f"{path}{key}" for key, value in content.items() if value not in (None, "")]
    return names + [name for key, value in content.items() for name in _names(value, f"{path}{key}.")]


@pytest.mark.slow
@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad_samples_are_refused_for_the_right_reason(path: Path, node_json: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        load_with(node_json, path)
    words = path.with_suffix(".txt").read_text().strip()
    assert words in raised.value.message
    assert str(path) in raised.value.message
    is_unsupported = "not supported" in words
    assert (raised.value.hint == UNSUPPORTED_HINT) is is_unsupported
    assert raised.value.hint in {HINT, UNSUPPORTED_HINT} or path.stem in NOT_A_DOCUMENT | TWICE


@pytest.mark.slow
@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_the_schema_refuses_what_is_not_of_the_form(path: Path) -> None:
    if path.stem in NOT_A_DOCUMENT | TWICE:
        return
    content = yaml.safe_load(path.read_text())
    if path.stem in CONTRADICTIONS or "not supported" in path.with_suffix(".txt").read_text():
        require_schema(content, SCHEMA)
    else:
        with pytest.raises(jsonschema.ValidationError):
            require_schema(content, SCHEMA)


def test_there_are_samples_of_both_kinds() -> None:
    assert len(GOOD) >= 5
    assert len(BAD) >= 15


def test_the_schema_has_the_tables_settings() -> None:
    def names(schema: dict[str, Any], path: str) -> list[str]:
        below = schema.get("properties", {})
        return [path] if not below else [name for key, rule in below.items() for name in names(rule, f"{path}.{key}")]

    top = SCHEMA["properties"]
    described = {name for key in ("flags", "imex") for name in names(top[key], key)}
    assert described == {setting.name for setting in SETTINGS if setting.in_file}


@pytest.mark.slow
def test_a_file_decides_names_and_answers(node_json: Path) -> None:
    settings = load_with(node_json, CONTRACT / "good/names-by-product.yaml").config.settings
    assert [(pattern.pattern, pattern.resource) for pattern in settings.patterns] == [
        ("NVIDIA A100-SXM4-80GB", "nvidia.com/gpu-a100-80gb"),
        ("*H100*", "example.com/h100"),
    ]
    answers = load_with(node_json, CONTRACT / "good/cdi.yaml").config.settings.answers
    assert (answers.lists, answers.by_index, answers.has_nodes) == ((DeviceList.CDI_CRI,), True, False)


@pytest.mark.slow
def test_what_a_file_shares_in_vain_is_noted(node_json: Path) -> None:
    path = CONTRACT / "good/shares-what-is-not-here.yaml"
    loaded = load_with(node_json, path)
    assert loaded.config.settings.mig_strategy == "mixed"
    assert not loaded.resolved.notes, "MIG devices of this profile may come"


def test_the_words_of_yaml_1_1_are_switches(node_json: Path) -> None:
    settings = load_with(node_json, CONTRACT / "good/yaml-1.1.yaml").config.settings
    assert (settings.ends_without_driver, settings.answers.has_nodes) == (True, True)
