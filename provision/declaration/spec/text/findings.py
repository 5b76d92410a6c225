"""Defines findings: what is wrong, or doubtful, in a declaration, where, and what to write instead.

Values only. How they look on a terminal is `provision.declaration.spec.text.excerpt`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

KeyPath = tuple[str | int, ...]
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class Severity(Enum):
    """An error stops everything; a warning is told and goes on."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Place:
    """Where something was written.

    A text file has a line and a column, both counted in characters from 1, and brings the line itself along. An
    inventory variable has neither: its `source` names the variable ("group gpu_nodes: grapnel_stack").
    """

    source: str
    line: int = 0
    column: int = 0
    width: int = 1
    text: str = ""

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong or doubtful; `key` is the dotted key it is about, empty for the whole text."""

    severity: Severity
    place: Place
    key: str
    message: str
    hint: str = ""
    nodes: tuple[str, ...] = field(default=())
    """The nodes that are concerned, when a level of the inventory is at fault."""


def dotted(path: KeyPath) -> str:
    """Return a key as people write it: `spec.driver.version`, `node.taints[0]`, `node.labels["a/b"]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN_KEY.match(part):
            text += f".{part}" if text else part
        else:
            text += f'["{part}"]'
    return text


def in_reading_order(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings sorted by source, line and column."""
    return sorted(findings, key=lambda each: (each.place.source, each.place.line, each.place.column, each.key))
