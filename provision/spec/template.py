"""Renders the file that `grapnel init` writes: every key with its default and one sentence, made from the model.

So it cannot say anything that the model does not: a test reads it back and compares it with the defaults.
"""

from __future__ import annotations

import json
import re
import textwrap
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import inspect as model

from provision.spec.model import API_VERSION, KIND, Metadata, StackSpec
from provision.spec.validate import allowed, unwrap

if TYPE_CHECKING:
    from collections.abc import Iterator

_WIDTH: Final = 100
_PLAIN: Final = re.compile(r"[A-Za-z/][A-Za-z0-9./_-]*\Z")
_NOT_TEXT: Final = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})

_HEAD: Final = f"""\
# What the GPU nodes of this fleet should be.
#
# Every key stands here with its default: delete what you do not change. `grapnel check` reports what is wrong.
# A group or a host of the inventory overrides keys below spec in its variable grapnel_stack.

apiVersion: {API_VERSION}
kind: {KIND}
"""


def render_template() -> str:
    """Return the declaration that says nothing but defaults, with comments."""
    lines = [_HEAD, "metadata:", *_keys(Metadata, "  "), "", "spec:"]
    for index, section in enumerate(_fields(StackSpec)):
        kind = unwrap(section.type).type
        if isinstance(kind, model.StructType):
            lines += [""] * (index > 0) + _comment(kind.cls.__doc__ or "", "  ")
            lines += [f"  {section.encode_name}:", *_keys(kind.cls, "    ")]
    return "\n".join(lines) + "\n"


def _keys(section: type, indent: str) -> Iterator[str]:
    for field in _fields(section):
        yield from _comment(_explain(field.type), indent)
        default = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
        yield f"{indent}{field.encode_name}: {_flow(default)}"


def _fields(section: type) -> tuple[model.Field, ...]:
    kind = model.type_info(section)
    return kind.fields if isinstance(kind, model.StructType) else ()


def _explain(wrapped: model.Type) -> str:
    """Return a key's sentence, its allowed values, and an example where nothing is the default."""
    kind = unwrap(wrapped)
    choices = allowed(unwrap(kind.type.item_type).type if isinstance(kind.type, model.VarTupleType) else kind.type)
    if len(choices) > 1:
        return f"{kind.description} Allowed: {', '.join(choices)}."
    if isinstance(kind.type, model.UnionType) and kind.type.includes_none:
        examples = [unwrap(each).example for each in kind.type.types if unwrap(each).example]
        return f"{kind.description} For example {json.dumps(examples[0])}."
    return kind.description


def _comment(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


def _flow(value: Any) -> str:  # noqa: ANN401 - whatever a key may hold
    """Return a value in YAML's flow style."""
    if isinstance(value, Enum):
        return _flow(value.value)
    if isinstance(value, str):
        return value if _PLAIN.match(value) and value.lower() not in _NOT_TEXT else json.dumps(value)
    if isinstance(value, tuple):
        return f"[{', '.join(_flow(each) for each in value)}]"
    return json.dumps(value)
