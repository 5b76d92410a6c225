"""The contract of labels: samples against the schema, and what is made against both."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from plugin.devices.naming import NamePattern
from plugin.devices.resources import OfferRules
from plugin.publication.labels.node_labels import make_labels
from tests.plugin.labels.nodes import CLIQUE, HOST, a100, cut, inventory_of, is_label

CONTRACT = Path(__file__).parents[3] / "docs/contracts/node-labels"
SCHEMA = json.loads((CONTRACT / "schema.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(CONTRACT.glob("good/*")), ids=lambda path: path.stem)
def test_good_samples_have_the_schemas_shape(path: Path) -> None:
    labels = json.loads(path.read_text())
    jsonschema.validate(labels, SCHEMA)
    assert all(is_label(name, value) for name, value in labels.items())
    assert list(labels) == sorted(labels)


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(CONTRACT.glob("bad/*")), ids=lambda path: path.stem)
def test_bad_samples_have_not(path: Path) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(path.read_text()), SCHEMA)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["none", "single", "mixed"])
@pytest.mark.parametrize(
    "gpus",
    [
        pytest.param((a100(0), a100(1)), id="whole GPUs"),
        pytest.param((cut(0, "1g.10gb", "1g.10gb"),), id="one profile"),
        pytest.param((cut(0, "1g.10gb"), a100(1)), id="some cut"),
    ],
)
def test_what_is_made_has_the_schemas_shape(gpus: tuple[object, ...], strategy: str) -> None:
    seen = inventory_of(gpus, fabrics=(CLIQUE, CLIQUE))  # type: ignore[arg-type] # GPUs
    jsonschema.validate(
        make_labels(seen, HOST, OfferRules((NamePattern("*", "nvidia.com/gpu"),), strategy), timestamp=1), SCHEMA
    )
