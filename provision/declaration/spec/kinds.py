"""Reads the model's types: a type without its wrapping, what the wrapping says in words, and what a value must be.

Shared by what checks declarations and what writes the first one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from msgspec import inspect as model

if TYPE_CHECKING:
    from collections.abc import Mapping

WORDS: Final[dict[type, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    dict: "a mapping",
    list: "a list",
    type(None): "nothing",
}


@dataclass(frozen=True)
class PlainType:
    """A type of the model without its wrapping, and what the wrapping said in words."""

    type: model.Type
    description: str = ""
    expected: str = ""
    example: str = ""
    fewest: int = 0
    unique: bool = False
    hides: str | None = None

    def may_hold_secret(self, value: str) -> bool:
        """Return whether a refused value must not be repeated."""
        return self.hides is not None and re.search(self.hides, value) is not None


def unwrap(wrapped: model.Type) -> PlainType:
    """Return a type without its wrapping."""
    kind = PlainType(wrapped)
    while isinstance(kind.type, model.Metadata):
        schema: Mapping[str, Any] = kind.type.extra_json_schema or {}
        extra: Mapping[str, Any] = kind.type.extra or {}
        kind = PlainType(
            kind.type.type,
            description=kind.description or schema.get("description", ""),
            expected=extra.get("expected", kind.expected),
            example=next(iter(schema.get("examples", ())), kind.example),
            fewest=schema.get("minItems", kind.fewest),
            unique=schema.get("uniqueItems", kind.unique),
            hides=extra.get("hides", kind.hides),
        )
    return kind


def may_be_nothing(kind: model.Type) -> bool:
    """Return whether a key may stand alone: a section then means its defaults."""
    if isinstance(kind, model.UnionType):
        return kind.includes_none
    return isinstance(kind, model.StructType) and not any(each.required for each in kind.fields)


def fits(value: object, kind: model.Type) -> bool:
    """Return whether the value has the type's shape; limits are looked at later."""
    match kind:
        case model.StructType() | model.DictType():
            return isinstance(value, dict)
        case model.VarTupleType():
            return isinstance(value, list)
        case model.BoolType():
            return isinstance(value, bool)
        case model.IntType():
            return isinstance(value, int) and not isinstance(value, bool)
        case model.FloatType():
            return isinstance(value, int | float) and not isinstance(value, bool)
        case _:
            return isinstance(value, str)


def word(kind: model.Type) -> str:
    match kind:
        case model.StructType() | model.DictType():
            return WORDS[dict]
        case model.VarTupleType():
            return WORDS[list]
        case model.BoolType():
            return WORDS[bool]
        case model.IntType():
            return WORDS[int]
        case model.FloatType():
            return WORDS[float]
        case _:
            return WORDS[str]


def allowed(kind: model.Type) -> list[str]:
    """Return the values of a closed set, nothing for other types."""
    if isinstance(kind, model.EnumType):
        return [str(each.value) for each in kind.cls]
    return [str(each) for each in kind.values] if isinstance(kind, model.LiteralType) else []


def matches(value: str, limits: model.StrType) -> bool:
    """Return whether the text is within its limits; unlike `$`, the end is the end, even before a line feed."""
    longest = limits.max_length or len(value)
    return len(value) <= longest and (limits.pattern is None or re.fullmatch(limits.pattern, value) is not None)
