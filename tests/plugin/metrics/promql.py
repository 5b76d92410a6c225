"""The names of metrics in an expression of PromQL: as much of its grammar as our rules and boards use."""

from __future__ import annotations

import re

_NOISE = re.compile(
    r'"(?:[^"\\]|\\.)*"'  # strings
    r"|\{[^}]*\}"  # selectors
    r"|\[[^\]]*\]"  # ranges
    r"|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)"  # labels
)
_NAME = re.compile(r"(?<![\w.:])[a-zA-Z_:][\w:]*(?!\w*\s*\()")
_WORDS = {"and", "or", "unless", "bool", "offset", "by", "without", "on", "ignoring", "inf", "nan"}


def metric_names(expression: str) -> set[str]:
    """Return every name that is no function, label, or word of the language."""
    return set(_NAME.findall(_NOISE.sub(" ", expression))) - _WORDS
