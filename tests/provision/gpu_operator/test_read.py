"""Objects as kubectl prints them."""

from __future__ import annotations

import pytest

from provision.planning.gpu_operator.errors import OperatorObjectsError
from provision.planning.gpu_operator.read import MAX_BYTES, parse_objects, parse_value, sort_objects

TEXT = b"""apiVersion: v1
kind: List
items:
- {apiVersion: nvidia.com/v1, kind: ClusterPolicy, metadata: {name: p}, spec: {driver: {version: "550.163.01"}}}
- {apiVersion: other.example.com/v1, kind: ClusterPolicy, metadata: {name: q}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: b}}
---
{apiVersion: nvidia.com/v1alpha1, kind: NVIDIADriver, metadata: {name: d}, spec: null}
"""


def test_lists_and_several_documents_are_read() -> None:
    found = sort_objects(parse_objects(TEXT, "objects.yaml"))
    assert found.policies == [("p", {"driver": {"version": "550.163.01"}})]
    assert found.drivers == [("d", {})]
    assert found.config_maps == {"c": {"a": "b"}}
    assert found.others == ["ClusterPolicy q"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(b"a: [", "objects.yaml:1", id="no YAML"),
        pytest.param(b"kind: &x a\nspec: *x\n", "objects.yaml:2:7: aliases are not read", id="aliases"),
        pytest.param(b"[1, 2]", "no object of Kubernetes", id="no object"),
        pytest.param(b"\xff\xfe\x00", "objects.yaml", id="no text"),
        pytest.param(b"kind: !!python/object/apply:os.system [id]\n", "objects.yaml:1", id="a tag that runs something"),
        pytest.param(b"[" * 5000, "objects.yaml", id="deeper than anything"),
        pytest.param(b"#" * (MAX_BYTES + 1), "larger than 4 MiB", id="huge"),
    ],
)
def test_what_cannot_be_read_is_told(text: bytes, message: str) -> None:
    with pytest.raises(OperatorObjectsError, match=message):
        parse_objects(text, "objects.yaml")


def test_a_text_in_a_config_map_that_is_no_yaml_is_nothing() -> None:
    assert parse_value("a: [") is None
    assert parse_value("a: 1") == {"a": 1}
