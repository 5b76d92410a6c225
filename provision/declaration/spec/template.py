"""Renders the files that `grapnel init` writes: keys with their defaults and one sentence each, made from the model.

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

from provision.declaration.spec.kinds import allowed, unwrap
from provision.declaration.spec.model import API_VERSION, KIND, Metadata, StackSpec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_WIDTH: Final = 100
_PLAIN: Final = re.compile(r"[A-Za-z/][A-Za-z0-9./_-]*\Z")
_NOT_TEXT: Final = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})

_HEAD: Final = """\
# What the GPU nodes of this fleet should be.
#
# {about} `grapnel check` reports what is wrong.
# A group or a host of the inventory overrides keys below spec in its variable grapnel_stack.

apiVersion: {version}
kind: {kind}
"""
_EVERY: Final = "Every key stands here with its default: delete what you do not change."
_FIRST: Final = (
    "These keys matter first, here with their defaults. `grapnel explain` names all others, and `grapnel explain KEY`\n"
    "# says what one means; `grapnel init --every-key` writes them all."
)
FIRST_KEYS: Final = ("driver.source", "driver.version", "runtime.engine", "scheduler.kind", "rollout.maxUnavailable")


def render_template() -> str:
    """Return the declaration that says every default, with comments."""
    return _render(_EVERY, frozenset())


def render_first_keys() -> str:
    """Return the declaration that says the defaults of `FIRST_KEYS` alone, with comments."""
    return _render(_FIRST, frozenset(FIRST_KEYS))


def _render(about: str, only: frozenset[str]) -> str:
    head = _HEAD.format(about=about, version=API_VERSION, kind=KIND)
    lines = [head, "metadata:", *_keys(Metadata, "  "), "", "spec:"]
    for section in _fields(StackSpec):
        kind = unwrap(section.type).type
        names = {key.rpartition(".")[2] for key in only if key.startswith(f"{section.encode_name}.")}
        if isinstance(kind, model.StructType) and (names or not only):
            lines += ["", *_comment(kind.cls.__doc__ or "", "  "), f"  {section.encode_name}:"]
            lines += _keys(kind.cls, "    ", names)
    return "\n".join(lines).replace("spec:\n\n", "spec:\n", 1) + "\n"


def _keys(section: type, indent: str, only: Collection[str] = ()) -> Iterator[str]:
    for field in _fields(section):
        if only and field.encode_name not in only:
            continue
        yield from _comment(_explain(field.type), indent)
        for key in _optional_keys(field.type):
            yield from _comment(f"- {key.encode_name}: {_explain(key.type)}", indent, hanging="  ")
        default = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
        if isinstance(default, msgspec.Struct):
            yield f"{indent}{field.encode_name}:"
            yield from _keys(type(default), f"{indent}  ")
        else:
            yield f"{indent}{field.encode_name}: {_flow(default)}"


def _fields(section: type) -> tuple[model.Field, ...]:
    kind = model.type_info(section)
    return kind.fields if isinstance(kind, model.StructType) else ()


def _optional_keys(wrapped: model.Type) -> tuple[model.Field, ...]:
    """Return the keys that do not stand in the file: of a section that is nothing by default, or of entries."""
    kind = _something(unwrap(wrapped).type)
    if isinstance(kind, model.VarTupleType):
        kind = unwrap(kind.item_type).type
    is_optional = kind is not unwrap(wrapped).type
    return kind.fields if is_optional and isinstance(kind, model.StructType) else ()


def _explain(wrapped: model.Type) -> str:
    """Return a key's sentence, its allowed values, and an example where nothing is the default."""
    kind = unwrap(wrapped)
    choices = _choices(_something(kind.type))
    if len(choices) > 1:
        return f"{kind.description} Allowed: {', '.join(choices)}."
    if isinstance(kind.type, model.UnionType) and kind.type.includes_none:
        examples = [unwrap(each).example for each in kind.type.types]
        examples = [each for each in examples if each and "\n" not in each]
        return kind.description + "".join(f" For example {json.dumps(each)}." for each in examples[:1])
    return kind.description


def _choices(kind: model.Type) -> list[str]:
    return allowed(unwrap(kind.item_type).type if isinstance(kind, model.VarTupleType) else kind)


def _something(kind: model.Type) -> model.Type:
    """Return the type of a value that may be nothing, for when it is something."""
    if not (isinstance(kind, model.UnionType) and kind.includes_none):
        return kind
    members = [each for each in kind.types if not isinstance(each, model.NoneType)]
    return unwrap(members[0]).type if len(members) == 1 else kind


def _comment(text: str, indent: str, *, hanging: str = "") -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# {hanging}")


def _flow(value: Any) -> str:
    """Return a value in YAML's flow style."""
    if isinstance(value, Enum):
        return _flow(value.value)
    if isinstance(value, str):
        return value if _PLAIN.match(value) and value.lower() not in _NOT_TEXT else json.dumps(value)
    if isinstance(value, tuple):
        return f"[{', '.join(_flow(each) for each in value)}]"
    return json.dumps(value)
