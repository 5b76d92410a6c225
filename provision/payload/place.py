"""Finds the payload that is meant: what is asked for, the environment's, the checkout's, the wheel's, the cache's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import provision
from provision.payload import store

if TYPE_CHECKING:
    from collections.abc import Mapping


def payload_folder(asked: Path | None, environment: Mapping[str, str], declaration: Path) -> Path:
    """Return where the payload is looked for: what is asked for, the environment's, the checkout's, installed."""
    if asked is not None:
        return asked
    if environment.get("GRAPNEL_PAYLOAD"):
        return Path(environment["GRAPNEL_PAYLOAD"])
    candidates = (
        declaration.absolute().parent / "dist" / "payload",
        Path(provision.__file__).parent / "_payload" / "archives",  # of a release's wheel
    )
    return next((folder for folder in candidates if folder.is_dir()), store.payload_folder(environment))
