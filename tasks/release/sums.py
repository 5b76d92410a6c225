"""Lists the digests of a release in the form that ``sha256sum --check`` reads."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def render_sums(folder: Path) -> str:
    """Return one line for each file of a folder."""
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    return "".join(f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names)
