"""Which driver the node is about to have: one that is staged, and that it does not run and has not run before.

`grapnel-driver` has staged it while pods run (docs/contracts/driver-run); its change drains the node later. Only that
set is read here, which is root's, and what cannot be read is no change to come.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from plugin.base.documents import read_object
from plugin.system.durable import read_bounded

HOME = Path("/var/lib/grapnel/driver")
_ID = re.compile(r"[0-9a-f]{12}")
_VERSION = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){1,3}")
_MAX_BYTES = 4 * 1024 * 1024


def next_driver(loaded: str, home: Path = HOME) -> str:
    """Return the version of the newest driver that is staged beside the `loaded` one; "" where there is none."""
    with suppress(OSError):
        known = {_name(home / "current"), _name(home / "previous")}
        sealed = [each / "complete" for each in (home / "staged").iterdir() if _ID.fullmatch(each.name)]
        ahead = [each for each in sealed if each.parent.name not in known and each.is_file()]
        for seal in sorted(ahead, key=lambda each: each.stat().st_mtime, reverse=True):
            if (version := _version(seal.with_name("change.json"))) not in ("", loaded):
                return version
    return ""


def _name(link: Path) -> str:
    """Return the change that a link names; "" where there is no link."""
    try:
        return link.readlink().name
    except OSError:
        return ""


def _version(path: Path) -> str:
    try:
        version = read_object(read_bounded(path, _MAX_BYTES + 1), _MAX_BYTES).get("version")
    except (OSError, ValueError, RecursionError):
        return ""
    return version if isinstance(version, str) and _VERSION.fullmatch(version) else ""
