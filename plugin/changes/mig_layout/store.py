"""The declared layout, and `mig-before.json` in the state folder: how GPUs were cut, written by one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.changes.mig_layout.change.store import read_file, write_file
from plugin.changes.mig_layout.document import MAX_BYTES as MAX_LAYOUT
from plugin.changes.mig_layout.document import parse_layout
from plugin.changes.mig_layout.record import MAX_BYTES, parse_before, render_before

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.changes.mig_layout.model import Layout
    from plugin.changes.mig_layout.record import Before

BEFORE_FILE = "mig-before.json"


def read_layout(path: Path) -> Layout | None:
    """Return the declared layout, None where none is declared; raises MigError."""
    return read_file(path, MAX_LAYOUT, parse_layout, "it is written by `grapnel apply`; the contract is mig-layout")


def read_before(folder: Path) -> Before | None:
    """Return how GPUs were cut, None where nothing was changed; raises MigError."""
    hint = "look at it, then remove it: how the gpus were cut is forgotten with it"
    return read_file(folder / BEFORE_FILE, MAX_BYTES, parse_before, hint)


def write_before(folder: Path, before: Before) -> None:
    """Put the file in place in one step and on the disk; raises MigError."""
    write_file(folder / BEFORE_FILE, render_before(before))
