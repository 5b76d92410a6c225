"""Remembers over restarts of what size the memory units of each GPU are: `memory-units.json` in the state folder.

The kubelet knows units by number alone. Where another size is declared while containers have some, the numbers would
mean another amount of memory; what is declared waits then (`plugin.kubelet.hold_back`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from plugin.base.documents import members, read_object, whole
from plugin.system.durable import read_bounded, replace_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from plugin.base.log import Logger

_NAME = "memory-units.json"
_MAX_BYTES = 64 * 1024


def read_unit_sizes(folder: Path) -> dict[str, int]:
    """Return the bytes of a unit by GPU; what cannot be read is forgotten."""
    try:
        found = members(read_object(read_bounded(folder / _NAME, _MAX_BYTES + 1), _MAX_BYTES).get("unitBytes"))
        return {uuid: whole(1)(size) for uuid, size in found.items()}
    except (OSError, ValueError):
        return {}


def write_unit_sizes(folder: Path, sizes: Mapping[str, int], logger: Logger) -> None:
    """Replace the file; one that cannot be written is told of."""
    problem = ""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(folder / _NAME, json.dumps({"unitBytes": dict(sizes)}) + "\n")
    except OSError as error:
        problem = f"{folder / _NAME} cannot be written: {(error.strerror or str(error)).lower()}"
    hint = {"hint": "do not change unitMiB and restart the daemon while containers have units"} if problem else {}
    logger.standing("memory units", problem, **hint)
