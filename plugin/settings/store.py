"""Remembers over restarts which value of its Node's label this node runs with: `config-label.json` in the state folder.

A daemon that starts offers what it offered before, without waiting for the Kubernetes API. `grapnel-node config` reads
it as well, to show what the daemon does.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from plugin.base.documents import member, read_object, text
from plugin.system.durable import read_bounded, replace_file

if TYPE_CHECKING:
    from pathlib import Path

_NAME = "config-label.json"
_MAX_BYTES = 16 * 1024
_MAX_VALUE = 63  # of a label


class HeardLabel(NamedTuple):
    """The value whose file counts, and another one that was heard and cannot be used, with the reason."""

    value: str = ""
    refused: str = ""
    problem: str = ""


def read_heard_label(folder: Path) -> HeardLabel | None:
    """Return what was remembered, None where nothing was; what cannot be read is forgotten."""
    try:
        document = read_object(read_bounded(folder / _NAME, _MAX_BYTES + 1), _MAX_BYTES)
        value, refused = (member(document, key, text(_MAX_VALUE), "") for key in ("value", "refused"))
        return HeardLabel(value, refused, member(document, "problem", text(), ""))
    except (OSError, ValueError):
        return None


def write_heard_label(folder: Path, heard: HeardLabel) -> None:
    """Replace the file; raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(folder / _NAME, json.dumps(heard._asdict()) + "\n")
