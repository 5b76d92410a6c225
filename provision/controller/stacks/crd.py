"""Makes the CustomResourceDefinition of GpuStack from the model that the file has.

What Kubernetes' structural schemas cannot say (names of keys, lookahead in patterns, one of several types) is left to
`provision.controller.stacks.decode`, whose answer is the condition Accepted. Defaults are not written down: an object
stays as it was applied, so that `kubectl diff` is quiet, and a later grapnel may have another default.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from provision.controller.stacks.cel import NAME_RULE, RULES
from provision.controller.stacks.decode import SELECTOR, WHEN_DELETED
from provision.controller.stacks.model import WhenDeleted
from provision.controller.stacks.status import StackStatus
from provision.declaration.spec.model import API_VERSION, StackSpec

GROUP, _, VERSION = API_VERSION.partition("/")
_TAKEN: Final = (
    *("description", "type", "pattern", "minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum"),
    *("enum", "format", "required"),
)
_SCALARS: Final = frozenset({"string", "integer", "number", "boolean"})
_MOST_ENTRIES: Final = 1000  # of lists and maps without a limit of their own: rules of CEL have a bounded cost
_LONGEST_TEXT: Final = 65_536
_SELECTOR: Final = {
    "description": "Which Nodes the stack owns, by their labels; {} selects every Node. A Node that two stacks select "
    "belongs to neither of them.",
    "type": "object",
    "properties": {
        "matchLabels": {"type": "object", "maxProperties": 100, "additionalProperties": {"type": "string"}},
        "matchExpressions": {
            "type": "array",
            "maxItems": 100,
            "x-kubernetes-list-type": "atomic",
            "items": {
                "type": "object",
                "required": ["key", "operator"],
                "properties": {
                    "key": {"type": "string"},
                    "operator": {"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
                    "values": {
                        "type": "array",
                        "maxItems": 1000,
                        "x-kubernetes-list-type": "atomic",
                        "items": {"type": "string"},
                    },
                },
            },
        },
    },
    "x-kubernetes-map-type": "atomic",
}
_DELETED: Final = {
    "description": "What becomes of the Nodes when the stack is deleted: Keep leaves them as they are, Remove takes "
    "grapnel and what came with it off them first, as `grapnel remove` does.",
    "type": "string",
    "enum": [str(each) for each in WhenDeleted],
}
_COLUMNS: Final = (
    ("State", "string", ".status.state", 0, "How the stack stands."),
    ("As declared", "string", ".status.progress", 0, "Nodes that are as declared, of all of the stack."),
    ("Driver", "string", ".status.driver", 0, "The driver that its nodes are to have."),
    ("Changing", "integer", ".status.nodes.changing", 1, "Nodes that are looked at or changed now."),
    ("Waiting", "integer", ".status.nodes.waiting", 1, "Nodes whose turn has not come."),
    ("Failed", "integer", ".status.nodes.failed", 1, "Nodes on which something failed."),
    ("Message", "string", ".status.message", 1, "How the stack stands, in a sentence."),
    ("Age", "date", ".metadata.creationTimestamp", 0, "Since when there is the stack."),
)


def definition() -> dict[str, Any]:
    """Return the CustomResourceDefinition, plain."""
    names = {"kind": "GpuStack", "listKind": "GpuStackList", "plural": "gpustacks", "singular": "gpustack"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gpustacks.{GROUP}", "labels": {"app.kubernetes.io/name": "grapnel"}},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {**names, "shortNames": ["gst"]},
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_column(*column) for column in _COLUMNS],
                    "schema": {"openAPIV3Schema": _root()},
                }
            ],
        },
    }


def _column(name: str, kind: str, path: str, priority: int, description: str) -> dict[str, Any]:
    shown = {"name": name, "type": kind, "jsonPath": path, "description": description}
    return shown | ({"priority": priority} if priority else {})


def _root() -> dict[str, Any]:
    spec = structural(StackSpec)
    spec["properties"] = {SELECTOR: dict(_SELECTOR), WHEN_DELETED: dict(_DELETED), **spec["properties"]}
    spec["required"] = [SELECTOR, *spec.get("required", [])]
    for rule in RULES:
        _section(spec, rule.section).setdefault("x-kubernetes-validations", []).append(rule.render())
    return {
        "description": "What the GPU nodes of a cluster, or some of them, are to be, and how they stand.",
        "type": "object",
        "required": ["spec"],
        "x-kubernetes-validations": [NAME_RULE.render()],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": structural(StackStatus),
        },
    }


def _section(schema: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    for key in path:
        schema = schema["items"] if key == "[]" else schema["properties"][key]
    return schema


def structural(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the structural schema of a type."""
    schema = msgspec.json.schema(kind)
    return _convert({"$ref": schema["$ref"]}, schema["$defs"])


def _convert(schema: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        found = _convert(known[schema["$ref"].removeprefix("#/$defs/")], known)
        return {**found, **_about(schema)}
    if "anyOf" in schema:
        members = [each for each in schema["anyOf"] if each.get("type") != "null"]
        if len(members) == 1:
            return {**_convert(members[0], known), **_about(schema)}
        return {**_one_of(members), **_about(schema)}
    converted: dict[str, Any] = {key: schema[key] for key in _TAKEN if key in schema}
    if "(?" in converted.get("pattern", ""):  # RE2 has no lookahead
        del converted["pattern"]
    if "exclusiveMaximum" in schema:
        converted |= {"maximum": schema["exclusiveMaximum"], "exclusiveMaximum": True}
    if "enum" in converted:
        converted["type"] = "string"
    if not converted.get("required"):
        converted.pop("required", None)
    if not converted.get("description"):
        converted.pop("description", None)
    return converted | _inner(schema, converted, known)


def _inner(schema: dict[str, Any], converted: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """Return what a schema says of what is in it."""
    kind = converted.get("type")
    if kind == "array":
        items = _convert(schema["items"], known)
        is_set = schema.get("uniqueItems", False) and items.get("type") in _SCALARS
        return {
            "items": items,
            "maxItems": min(schema.get("maxItems", _MOST_ENTRIES), _MOST_ENTRIES),
            "x-kubernetes-list-type": "set" if is_set else "atomic",
        }
    if kind == "object" and "properties" in schema:
        inside = {key: _convert(each, known) for key, each in schema["properties"].items()}
        for key, each in inside.items():
            if each.get("type") == "object" and key not in schema.get("required", ()):
                each["nullable"] = True  # what server-side apply makes of a section that says nothing
        return {"properties": inside}
    if kind == "object":
        values = schema.get("additionalProperties")
        inner = _convert(values, known) if isinstance(values, dict) else {"x-kubernetes-preserve-unknown-fields": True}
        return {"additionalProperties": inner, "maxProperties": _MOST_ENTRIES}
    if kind == "string" and "enum" not in converted and "format" not in converted:
        return {"maxLength": schema.get("maxLength", _LONGEST_TEXT)}
    return {}


def _one_of(members: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the schema of a value of several types: a number or a text, or anything, which `decode` judges."""
    if {each.get("type") for each in members} == {"integer", "string"}:
        return {"x-kubernetes-int-or-string": True}
    return {"x-kubernetes-preserve-unknown-fields": True}


def _about(schema: dict[str, Any]) -> dict[str, str]:
    return {"description": schema["description"]} if schema.get("description") else {}
