"""Tells what the node has of driver changes and what became of the last run, for people and for the controller."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.driver.record.journal import read_journal
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.run import (
    is_managed,
    is_reboot_due,
    read_run,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import (
    COST,
    StoreError,
    current_change,
    is_complete,
    previous_change,
    read_change,
    staged_changes,
    staged_folder,
)

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

SCHEMA = "grapnel.dev/driver-status/v1alpha1"
_MAX_STEPS = 200  # of a run that was continued again and again, the last


def read_status(host: Host) -> dict[str, Any]:
    """Return what ``grapnel-driver status`` prints, but for whether the unit runs."""
    run = read_run(host)
    steps = read_journal(host, run.run)[-_MAX_STEPS:] if run else []
    shown = asdict(run) if run else None
    if shown is not None and run is not None and run.is_open and steps:
        shown["step"] = steps[-1]["step"]
    return {
        "schema": SCHEMA,
        "run": shown,
        "steps": steps,
        "current": current_change(host),
        "previous": previous_change(host),
        "managed": is_managed(host),
        "reboot_due": run is not None and is_reboot_due(host, run),
        "staged": [_describe(host, identifier) for identifier in staged_changes(host)],
    }


def _describe(host: Host, identifier: str) -> dict[str, Any]:
    folder = staged_folder(identifier)
    try:
        version: str | None = read_change(host, folder).version
    except StoreError:
        version = None
    return {
        "id": identifier,
        "version": version,
        "complete": version is not None and is_complete(host, identifier),
        "cost": _cost(host, f"{folder}/{COST}"),
    }


def _cost(host: Host, path: str) -> dict[str, Any]:
    try:
        found = json.loads(host.read_text(path) or "")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
