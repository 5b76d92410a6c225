"""Parses label selectors as `kubectl get --selector` takes them, and tells which labels they match. Pure.

The grammar is that of apimachinery's package labels, and so is its meaning: a missing key satisfies `!=` and `notin`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_REQUIREMENT: Final = re.compile(
    r" *(?:!(?P<absent>[^ ,!=()]+)|(?P<key>[^ ,!=()]+)"
    r"(?: *(?P<equal>==?|!=) *(?P<value>[^ ,!=()]*)| +(?P<among>in|notin) *\((?P<values>[^()]*)\))?)"
    r" *(?:,|$)"
)


@dataclass(frozen=True, slots=True)
class Requirement:
    """What is asked of one key: one of ``values`` (None: any value), or, where it ``is_refused``, none of them."""

    key: str
    values: frozenset[str] | None
    is_refused: bool = False

    def is_met(self, labels: Mapping[str, str]) -> bool:
        """Tell whether labels are as it wants."""
        value = labels.get(self.key)
        is_found = value is not None and (self.values is None or value in self.values)
        return is_found is not self.is_refused


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Every requirement has to be met; without any, everything is selected."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether labels are selected."""
        return all(each.is_met(labels) for each in self.requirements)


def parse_selector(text: str) -> LabelSelector:
    """Return the selector of a text; raises ValueError where it is none."""
    found, place = [], 0
    while place < len(text):
        match = _REQUIREMENT.match(text, place)
        if match is None or (match.end() == len(text) and text.rstrip().endswith(",")):
            raise ValueError(f"'{text}' is no label selector")
        found.append(_requirement(match))
        place = match.end()
    return LabelSelector(tuple(found))


def _requirement(match: re.Match[str]) -> Requirement:
    if match["absent"]:
        return Requirement(match["absent"], None, is_refused=True)
    if match["equal"]:
        return Requirement(match["key"], frozenset({match["value"]}), is_refused=match["equal"] == "!=")
    if match["among"]:
        values = frozenset(value.strip() for value in match["values"].split(","))
        return Requirement(match["key"], values, is_refused=match["among"] == "notin")
    return Requirement(match["key"], None)
