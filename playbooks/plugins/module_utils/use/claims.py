"""Finds the claims that are prepared on a node, and waits until there are none.

A pod with a claim ends only where its claim is given back, which the node daemon does.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Host

_FOLDERS = tuple(f"/var/lib/grapnel/node/{name}" for name in ("claims", "other-claims", "domain-claims"))
_FILE = ".json"
_LOOK_S = 0.5
_SHOWN = 5


class ClaimsError(Exception):
    """Claims stay prepared; the message names them and what helps."""


def find_claims(host: Host) -> list[str]:
    """Return the claims that are prepared on the node, each once; one whose file cannot be read by that."""
    files = [f"{folder}/{name}" for folder in _FOLDERS for name in host.names(folder) if name.endswith(_FILE)]
    return sorted({_claim(host, path) for path in files})


def wait_for_claims(host: Host, clock: Clock, wait_s: float, then: str) -> None:
    """Wait until no claim is prepared; raises `ClaimsError`, which says what to do ``then``."""
    until = clock.monotonic() + wait_s
    while claims := find_claims(host):
        if clock.monotonic() >= until:
            more = f" and {len(claims) - _SHOWN} more" if len(claims) > _SHOWN else ""
            raise ClaimsError(
                f"claims are prepared on this node: {', '.join(claims[:_SHOWN])}{more}. Their pods end only "
                "while grapnel-node is there: end them, also those that no drain evicts, such as a DaemonSet's, and "
                f"{then} again (of a claim that is not in the cluster any more: docs/dra.md, What is kept)"
            )
        clock.sleep(_LOOK_S)


def _claim(host: Host, path: str) -> str:
    try:
        document = json.loads(host.read_text(path) or "")
        namespace, name = document["namespace"], document["name"]
    except (ValueError, RecursionError, TypeError, LookupError):
        return path
    return f"{namespace}/{name}"
