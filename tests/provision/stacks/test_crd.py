"""The custom resource follows the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from provision.controller.stacks.cel import RULES
from provision.controller.stacks.crd import definition, structural
from provision.declaration.spec.model import StackSpec
from tasks.generated.crd import FILE, render

if TYPE_CHECKING:
    from collections.abc import Iterator

FORBIDDEN = {"$ref", "$defs", "uniqueItems", "propertyNames", "default", "examples", "title", "anyOf", "const"}


def schemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    for each in schema.get("properties", {}).values():
        yield from schemas(each)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from schemas(schema[key])


def test_the_committed_file_is_what_the_model_says() -> None:
    assert FILE.read_text() == render(), "run `python -P -m tasks.generated.crd`"


def test_every_key_of_the_model_is_in_the_schema() -> None:
    def keys(kind: type) -> Iterator[str]:
        for field in msgspec.structs.fields(kind):
            yield field.encode_name

    (version,) = definition()["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert set(spec["properties"]) == {"nodeSelector", "whenDeleted", *keys(StackSpec)}
    assert spec["required"] == ["nodeSelector"]


def test_schemas_are_structural() -> None:
    for schema in schemas(structural(StackSpec)):
        assert not FORBIDDEN & schema.keys(), schema
        anything = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-int-or-string")
        assert "type" in schema or anything, schema
        assert "(?" not in schema.get("pattern", "")


def test_what_is_not_set_stays_unset() -> None:
    assert all("default" not in schema for schema in schemas(structural(StackSpec)))


def test_no_rule_is_there_twice() -> None:
    assert len({(rule.section, rule.rule) for rule in RULES}) == len(RULES)
