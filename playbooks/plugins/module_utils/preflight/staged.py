"""Reads what the driver program keeps on the node: staged changes, the one that the node runs, the last run.

Whether a staged change is as it was written is checked by the program itself, before it uses it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Callable

from ansible_collections.grapnel.node.plugins.module_utils.printable import printable

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.host import Host

FOLDER = "/var/lib/grapnel/driver"
_STAGED = f"{FOLDER}/staged"
_MAX_STAGED = 32
_MAX_REASON = 2000
_ID = re.compile(r"^[0-9a-f]{12}$")
_WORD = re.compile(r"^[A-Za-z0-9._+~:@-]{0,128}$")
_STATES = ("running", "done", "failed", "returned", "quarantined")
_COSTS = ("download_s", "build_s", "bytes", "cpu_s")


def read_driver_state(host: Host, is_out_of_date: Callable[[str], bool]) -> dict[str, Any]:
    """Return the facts ``driver``; what cannot be read as it should be counts as absent.

    ``is_out_of_date`` tells of a complete change whether it has to be staged again.
    """
    ids = [name for name in host.names(_STAGED) if _ID.match(name)][:_MAX_STAGED]
    staged = [_staged(host, one, is_out_of_date) for one in ids]
    return {"staged": staged, "current": _current(host), "run": _run(host)}


def _staged(host: Host, change_id: str, is_out_of_date: Callable[[str], bool]) -> dict[str, Any]:
    folder = f"{_STAGED}/{change_id}"
    cost = _document(host, f"{folder}/cost.json")
    return {
        "id": change_id,
        "version": _word(_document(host, f"{folder}/change.json").get("version")) or None,
        "complete": host.path(f"{folder}/complete").is_file() and not is_out_of_date(change_id),
        "cost": {name: cost[name] for name in _COSTS if _is_amount(cost.get(name))},
    }


def _current(host: Host) -> str | None:
    try:
        name = host.path(f"{FOLDER}/current").readlink().name
    except OSError:
        return None
    return name if _ID.match(name) else None


def _run(host: Host) -> dict[str, Any] | None:
    said = _document(host, f"{FOLDER}/run.json")
    if said.get("state") not in _STATES:
        return None
    words = {name: _word(said.get(name)) for name in ("run", "change", "verb", "unit", "step")}
    seconds = said.get("out_of_service_s")
    return {
        **words,
        "state": said["state"],
        "reason": printable(said["reason"], _MAX_REASON) if isinstance(said.get("reason"), str) else None,
        "out_of_service_s": seconds if _is_amount(seconds) else None,
    }


def _document(host: Host, path: str) -> dict[str, Any]:
    try:
        said = json.loads(host.read_text(path) or "")
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _word(value: object) -> str:
    return value if isinstance(value, str) and _WORD.match(value) else ""


def _is_amount(value: object) -> bool:
    """Tell whether something is a number that can be sent: not a truth, not negative, not endless."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e12  # noqa: PLR2004
