"""Writes a tree as TOML, for files of our own: nobody's comments or order have to be kept.

The only importer of ``tomli_w``. tomlkit's time for that grows with the square of the number of keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tomli_w

if TYPE_CHECKING:
    from collections.abc import Mapping


def render_toml(tree: Mapping[str, Any], *, header: str) -> str:
    """Return the text of a tree below a comment of one line."""
    return f"# {header}\n{tomli_w.dumps(tree)}"
