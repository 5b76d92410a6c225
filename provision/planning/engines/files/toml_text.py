"""Writes a tree as TOML, for files of our own: nobody's comments or order have to be kept.

The only importer of ``tomli_w``. tomlkit's time for that grows with the square of the number of keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tomli_w

from provision.planning.engines.files.mark import marked

if TYPE_CHECKING:
    from collections.abc import Mapping


def render_toml(tree: Mapping[str, Any]) -> str:
    """Return the text of a tree below grapnel's mark."""
    return marked(tomli_w.dumps(tree))
