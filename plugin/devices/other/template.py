"""Texts with `{variables}`, of which values from sysfs fill the gaps. Pure.

A value that goes into a path is one component of it and nothing else: what a device says of itself never leads
anywhere but where the file says.
"""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VARIABLE = re.compile(r"[a-z][a-z0-9_]{0,31}")
_GAP = re.compile(r"\{([^{}]*)\}")
_COMPONENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:+@-]{0,63}")
_LITERAL = re.compile(r"[A-Za-z0-9_.:+@-]*")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")
_MAX_RENDERED = 64


def parse_template(value: object, known: frozenset[str], max_length: int = 256) -> str:
    """Return a template whose variables are known; raises ValueError."""
    if not isinstance(value, str) or not value or len(value) > max_length or not value.isprintable():
        raise ValueError(f"must be a printable text of 1 to {max_length} characters")
    for name in variables_of(value):
        if name not in known:
            raise ValueError(f"has an unknown variable {{{name[:32]}}}: there are {', '.join(sorted(known))}")
    if "{" in _GAP.sub("", value) or "}" in _GAP.sub("", value):
        raise ValueError('has a "{" or "}" that belongs to no variable')
    return value


def parse_path(value: object, known: frozenset[str]) -> str:
    """Return a template of a relative path that stays below its root; raises ValueError."""
    path = parse_template(value, known)
    for component in path.split("/"):
        rest = _GAP.sub("x", component)
        if rest in {"", ".", ".."} or not _LITERAL.fullmatch(rest):
            raise ValueError(f"must be a path below its folder, without .. and with no unusual characters: {path!r}")
    return path


def variables_of(template: str) -> tuple[str, ...]:
    """Return the names of the variables in it, each once."""
    return tuple(dict.fromkeys(_GAP.findall(template)))


def render(template: str, values: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the text once for each combination of values; none where a variable has no value."""
    names = variables_of(template)
    combinations = product(*(values[name] for name in names))
    rendered = []
    for _, chosen in zip(range(_MAX_RENDERED), combinations, strict=False):
        given = dict(zip(names, chosen, strict=True))
        rendered.append(_filled(template, given))
    return tuple(rendered)


def _filled(template: str, given: Mapping[str, str]) -> str:
    return _GAP.sub(lambda gap: given[gap[1]], template)


def unfit_for_path(values: Mapping[str, Sequence[str]]) -> str:
    """Return which value cannot be a component of a path, "" where all can."""
    for name, given in values.items():
        for value in given:
            if not _COMPONENT.fullmatch(value):
                return f"{{{name}}} is {value[:64]!a}, which is no name of a file"
    return ""


def fit_for_resource(values: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Return the values with `-` for whatever a resource's name may not have."""
    return {name: tuple(_NOT_IN_NAMES.sub("-", value) for value in given) for name, given in values.items()}
