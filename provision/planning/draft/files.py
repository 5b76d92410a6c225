"""Reads files of a node that hold JSON, whatever they hold."""

from __future__ import annotations

import json
from typing import Any


def read_object(text: str | None) -> dict[str, Any]:
    """Return the object that a text holds, an empty one for anything else."""
    try:
        tree = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return tree if isinstance(tree, dict) else {}
