"""Reads what the driver program keeps on the node: staged changes, the one that the node runs, the last run.

A set counts as complete as long as the node is still the one that it was made for; whether its files are as they were
written is checked by the program itself, before it uses them.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.driver.judge.drift import still_fits
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.run import (
    change_to_undo,
    is_managed,
    is_reboot_due,
    read_run,
)
from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable
from ansible_collections.grapnel.node.plugins.module_utils.packages.installed import find_reader
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

FOLDER = "/var/lib/grapnel/driver"
_STAGED = f"{FOLDER}/staged"
_MAX_STAGED = 32
_MAX_REASON = 2000
_ID = re.compile(r"^[0-9a-f]{12}$")
_WORD = re.compile(r"^[A-Za-z0-9._+~:@-]{0,128}$")
_STATES = ("running", "needs-reboot", "done", "failed", "returned", "quarantined")
_MOST = 1e12  # seconds or bytes
_COSTS = ("download_s", "build_s", "bytes", "cpu_s")


def read_driver_state(host: Host) -> dict[str, Any]:
    """Return the facts ``driver``; what cannot be read as it should be counts as absent."""
    ids = [name for name in host.names(_STAGED) if _ID.match(name)][:_MAX_STAGED]
    return {
        "staged": [_staged(host, one) for one in ids],
        "current": _current(host),
        "run": _run(host),
        "back": _back(host),
        "managed": is_managed(host),
    }


def _staged(host: Host, change_id: str) -> dict[str, Any]:
    folder = f"{_STAGED}/{change_id}"
    cost = _document(host, f"{folder}/cost.json")
    return {
        "id": change_id,
        "version": _word(_document(host, f"{folder}/change.json").get("version")) or None,
        "complete": _is_complete(host, change_id),
        "cost": {name: cost[name] for name in _COSTS if _is_amount(cost.get(name))},
    }


def _is_complete(host: Host, change_id: str) -> bool:
    try:
        return still_fits(host, find_reader(host), change_id)
    except PackageError:
        return False


def _back(host: Host) -> str | None:
    """Return the version that `back` leads to, empty for no driver at all; None where there is nothing to return to."""
    identifier = change_to_undo(host)
    if identifier is None or not _ID.match(identifier) or not _is_complete(host, identifier):
        return None
    version = _document(host, f"{_STAGED}/{identifier}/before/change.json").get("version")
    return version if isinstance(version, str) and _WORD.match(version) else None


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
    seconds, record = said.get("out_of_service_s"), read_run(host)
    return {
        **words,
        "state": said["state"],
        "reboot": printable(said["reboot"], _MAX_REASON) if isinstance(said.get("reboot"), str) else "",
        "reboot_due": record is not None and is_reboot_due(host, record),
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
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < _MOST
