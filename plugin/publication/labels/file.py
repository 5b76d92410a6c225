"""The file through which Node Feature Discovery hears of labels: its "local" source reads every file of a folder.

One `name=value` a line, as NVIDIA's feature discovery writes it. A name that begins with a dot is not read there, so a
temporary file beside it does no harm.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from plugin.system.durable import replace_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_MODE = 0o644  # Node Feature Discovery runs as nobody


def render_labels(labels: Mapping[str, str]) -> str:
    """Return the text of the file."""
    return "".join(f"{name}={value}\n" for name, value in labels.items())


def write_labels(path: Path, labels: Mapping[str, str]) -> bool:
    """Bring the file to these labels, without any to none at all; returns whether it was changed. Raises OSError.

    A file that says the same already is left alone: each change makes Node Feature Discovery look at the node.
    """
    if not labels:
        return remove_labels(path)
    text = render_labels(labels)
    with suppress(OSError, UnicodeDecodeError):
        if path.read_text(encoding="utf-8") == text:
            return False
    replace_file(path, text, _MODE)
    return True


def remove_labels(path: Path) -> bool:
    """Remove the file; returns whether there was one. Raises OSError."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True
