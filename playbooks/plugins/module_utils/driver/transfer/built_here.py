"""Reads for which kernels a node has built the modules of a set itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

OWN_BUILDS = "built.json"
_MAX_BYTES = 64 * 1024


def own_builds(host: Host, folder: str) -> tuple[str, ...]:
    """Return those kernels; none for a set that does not say it."""
    try:
        found = json.loads(host.read_text(f"{folder}/{OWN_BUILDS}", _MAX_BYTES) or "[]")
    except ValueError:
        return ()
    return tuple(found) if isinstance(found, list) and all(isinstance(one, str) for one in found) else ()
