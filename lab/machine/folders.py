"""Locates the lab's folders: the XDG cache for what can be rebuilt, the XDG state folder for sites."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path


def cache_dir() -> Path:
    """Return grapnel's folder in the XDG cache (not created)."""
    return _xdg("XDG_CACHE_HOME", ".cache") / "grapnel"


def state_dir() -> Path:
    """Return the folder of the sites (not created)."""
    return _xdg("XDG_STATE_HOME", ".local/state") / "grapnel" / "lab"


def _xdg(variable: str, below_home: str) -> Path:
    configured = os.environ.get(variable)
    return Path(configured) if configured else Path.home() / below_home


def content_key(*parts: str | bytes) -> str:
    """Digest of a build's inputs: 12 hexadecimal digits, used in the name of its folder in the cache."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()[:12]


def write_atomic(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace ``path`` atomically: readers see either the old or the new text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    Path(temporary).chmod(mode)
    Path(temporary).replace(path)
