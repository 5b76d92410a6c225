"""Rules and boards as they are in files, promtool, and the names of metrics in an expression of PromQL.

Of its grammar as much as our rules and boards use.
"""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lab.tools import promtool

if TYPE_CHECKING:
    from pathlib import Path

_PROMTOOL = promtool.find()
WITH_PROMTOOL = pytest.mark.skipif(
    _PROMTOOL is None,
    reason="no promtool on PATH or in the cache: python3 -m lab.tools.promtool fetches it; make check does",
)

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


def read_rules(path: Path) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


def read_board(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def read_panels(path: Path) -> list[dict[str, Any]]:
    return [panel for panel in read_board(path)["panels"] if panel["type"] != "row"]


def promtool_says(*arguments: str, page: bytes = b"") -> tuple[int, str]:
    """Return the status of promtool, and what it says."""
    done = subprocess.run([str(_PROMTOOL), *arguments], input=page, capture_output=True, check=False, timeout=300)
    return done.returncode, (done.stdout + done.stderr).decode()
