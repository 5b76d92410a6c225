"""Tables for people: as wide as the terminal, and words that are the same in every verb."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WIDE = 120  # columns, from which on a whole UUID has room
WIDEST = 200  # from here on everything has
_SHORT_ID = 12
_LEAST = 20  # columns for the last cell, however narrow the terminal is


def clock(utc: str | None) -> str:
    """Return a time for a table: the whole second, UTC."""
    return "-" if not utc else f"{utc[:10]} {utc[11:19]}Z"


def short_id(device: str) -> str:
    """Return the beginning of a GPU's id, which `explain` understands; what tells a share from others stays."""
    if not device.startswith(("GPU-", "MIG-")):
        return device
    head, mark, share = device.partition("::")
    return head[:_SHORT_ID] + mark + share


def pods_cell(pods: Sequence[Mapping[str, Any]]) -> str:
    """Return who has a device, each pod once."""
    return ", ".join(dict.fromkeys(f"{pod['namespace']}/{pod['pod']}" for pod in pods)) or "-"


def fit_table(rows: Sequence[tuple[tuple[str, ...], str]], width: int) -> list[str]:
    """Return the lines of a table of cells and notes.

    What the last cell has too much for the width goes on below it; a note is below its row, under the second column.
    """
    widths = [max(len(cells[column]) for cells, _ in rows) for column in range(len(rows[0][0]) - 1)]
    start, indent = sum(widths) + 2 * len(widths), widths[0] + 2
    lines = []
    for cells, note in rows:
        head = "".join(f"{cell:{size}}  " for cell, size in zip(cells, widths, strict=False))
        first, *more = _wrap(cells[-1], max(_LEAST, width - start))
        lines.append((head + first).rstrip())
        lines += [" " * start + line for line in more]
        lines += [" " * indent + line for line in _wrap(note, max(_LEAST, width - indent)) if line]
    return lines


def _wrap(text: str, width: int) -> list[str]:
    """Return lines that break between words; a word that is too long has a line of its own."""
    lines, line = [], ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line]
