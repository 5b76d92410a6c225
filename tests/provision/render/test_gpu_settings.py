"""What the controller writes of GPUs' settings the node's program reads: contract `docs/contracts/gpu-settings`."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest

from plugin.changes.gpu_settings.document import parse_settings
from plugin.driver.gpu_settings import Setting
from provision.declaration.spec.model import Node, StackSpec
from provision.planning.render.gpu_settings import render_gpu_settings

SCHEMA = json.loads((Path(__file__).parents[3] / "docs/contracts/gpu-settings/schema.json").read_text())
CLOCKS = {"min": 900, "max": 1200}


@pytest.mark.parametrize(
    ("entry", "setting", "value"),
    [
        pytest.param({"persistenceMode": False}, Setting.PERSISTENCE, False, id="a mode that is off"),
        pytest.param({"computeMode": "EXCLUSIVE_PROCESS"}, Setting.COMPUTE, "EXCLUSIVE_PROCESS", id="a mode by name"),
        pytest.param({"powerLimitWatts": 300}, Setting.POWER, 300_000, id="power"),
        pytest.param({"graphicsClockMHz": CLOCKS}, Setting.GRAPHICS, (900, 1200), id="clocks"),
        pytest.param({"memoryClockMHz": CLOCKS}, Setting.MEMORY, (900, 1200), id="the memory's clocks"),
    ],
)
def test_the_program_reads_what_is_declared(entry: dict[str, object], setting: Setting, value: object) -> None:
    declared = {"devices": [0, 2], "deviceFilter": ["0x20b010de:0x134f10de"], **entry}
    text = render_gpu_settings(StackSpec(node=msgspec.convert({"gpus": [declared]}, Node))) or ""
    jsonschema.validate(json.loads(text), SCHEMA)
    (read,) = parse_settings(text.encode())
    assert (read.devices, read.filters, read.values) == ((0, 2), ((0x20B010DE, 0x134F10DE),), {setting: value})


def test_without_a_declaration_there_is_no_file() -> None:
    assert render_gpu_settings(StackSpec()) is None
