"""What real engines handed to runc, as captured on real nodes: the hook decides on it as it decided there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from runtime_hook.commands.explain import Sources, explain

CONTRACTS = Path(__file__).resolve().parents[3] / "docs/contracts"
ENGINES = CONTRACTS / "allocation/engines"
SCHEMA = json.loads((ENGINES / "schema.json").read_text(encoding="utf-8"))
SAMPLES = sorted(ENGINES.glob("*/*/*.json"))
GPUS = 4


def titles(path: Path) -> str:
    return " ".join(path.relative_to(ENGINES).with_suffix("").parts)


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The inventory of a node with the GPUs of the samples."""
    content = json.loads((CONTRACTS / "inventory/good/debian-one-gpu.json").read_text(encoding="utf-8"))
    (gpu,) = content["devices"]["gpus"]
    content["devices"]["gpus"] = [
        {**gpu, "index": number, "minor_number": number, "minor": number, "path": f"/dev/nvidia{number}"}
        | {"uuid": f"GPU-00000000-0000-0000-0000-{number:012}", "pci_address": f"0000:{number + 1}0:00.0"}
        for number in range(GPUS)
    ]
    path = tmp_path_factory.mktemp("inventory") / "inventory.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_every_engine_has_the_same_samples() -> None:
    names = [{path.relative_to(engine) for path in engine.glob("*/*.json")} for engine in sorted(ENGINES.glob("*/"))]

    assert names
    assert all(each == names[0] for each in names)


@pytest.mark.slow
@pytest.mark.parametrize("path", SAMPLES, ids=titles)
def test_samples_follow_their_schema(path: Path) -> None:
    jsonschema.validate(json.loads(path.read_text(encoding="utf-8")), SCHEMA)


@pytest.mark.slow
@pytest.mark.parametrize("path", SAMPLES, ids=titles)
def test_the_hook_decides_as_it_did_there(path: Path, inventory: Path, tmp_path: Path) -> None:
    sample = json.loads(path.read_text(encoding="utf-8"))
    hook: dict[str, Any] = sample["hook"] or {}
    config, settings = tmp_path / "config.json", tmp_path / "hook.json"
    config.write_text(json.dumps(sample["config"]), encoding="utf-8")
    settings.write_text("{}", encoding="utf-8")

    told = explain(Sources(str(config), str(inventory), str(settings), str(tmp_path)))

    devices = told["devices"]
    assert isinstance(devices, list)
    assert told["refused"] is None
    assert told["entitled"] is (path.parent.name == "good")
    assert told["source"] == hook.get("source")
    assert ",".join(device["uuid"] for device in devices) == hook.get("gpus", "")
    if "reason" in hook:
        assert told["reason"] == hook["reason"]
