"""What the controller writes of a MIG layout is what the node's program reads: contract `docs/contracts/mig-layout`."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest

from plugin.changes.mig_layout.document import parse_layout
from provision.declaration.spec.model import Mig, StackSpec
from provision.planning.render.mig_layout import render_mig_layout

SCHEMA = json.loads((Path(__file__).parents[3] / "docs/contracts/mig-layout/schema.json").read_text())


@pytest.mark.parametrize(
    ("entries", "devices"),
    [
        pytest.param([{"devices": "all", "mig-enabled": False}], [], id="no mig"),
        pytest.param(
            [
                {
                    "device-filter": ["0x233010DE", "0x20B010DE:0x134F10DE"],
                    "devices": [0, 1],
                    "mig-enabled": True,
                    "mig-devices": {"1g.10gb": 2, "MIG 3g.40gb": 1},
                }
            ],
            ["1g.10gb", "1g.10gb", "3g.40gb"],
            id="some gpus of a kind",
        ),
        pytest.param(
            [{"devices": "all", "mig-enabled": True, "mig-devices": {"1c.2g.20gb": 2, "1g.10gb+me": 1}}],
            ["1c.2g.20gb", "1c.2g.20gb", "1g.10gb+me"],
            id="parts of instances, and media extensions",
        ),
    ],
)
def test_what_one_side_writes_the_other_side_reads(entries: list[dict[str, object]], devices: list[str]) -> None:
    config = {"version": "v1", "mig-configs": {"chosen": entries}}
    stack = StackSpec(mig=msgspec.convert({"layout": "chosen", "config": config}, Mig))
    text = render_mig_layout(stack)
    assert text is not None
    jsonschema.validate(json.loads(text), SCHEMA)
    (entry,) = parse_layout(text.encode()).entries
    assert sorted(each.name for each in entry.wanted) == devices
