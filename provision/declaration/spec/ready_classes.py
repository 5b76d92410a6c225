"""Finds the device classes that come with grapnel: in a checkout or in an installed package."""

from __future__ import annotations

from pathlib import Path

import provision

SUFFIX = ".json"


def find_ready() -> dict[str, Path]:
    """Return the files by the names that a declaration has for them."""
    package = Path(provision.__file__).parent
    folders = (package.parent / "deploy" / "devices", package / "_devices")
    return {path.stem: path for folder in folders for path in sorted(folder.glob(f"*{SUFFIX}"))}
