"""Describes how a node's GPUs are divided by MIG: by the layout that grapnel wrote, else by what they tell."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from provision.planning.draft.choose import is_allowed
from provision.planning.draft.files import read_object
from provision.planning.draft.model import Said
from provision.planning.render.mig_layout import MIG_LAYOUT_PATH

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.mig import MigGpu
    from provision.declaration.fleet.facts.node import NodeFacts

LAYOUT: Final = "as-found"


def describe_mig(facts: NodeFacts) -> list[Said]:
    """Return the layout as one of mig-parted's; nothing where none was written and no GPU is in MIG mode."""
    written = read_object(facts.content(MIG_LAYOUT_PATH)).get("layouts")
    if isinstance(written, list):
        return _said([_written(each) for each in written if isinstance(each, dict)], MIG_LAYOUT_PATH)
    gpus = () if facts.mig is None else facts.mig.gpus
    if not any(gpu.enabled for gpu in gpus):
        return []
    by_state: dict[str, list[MigGpu]] = {}
    for gpu in gpus:
        if gpu.enabled is not None:
            by_state.setdefault(json.dumps([gpu.enabled, gpu.devices], sort_keys=True), []).append(gpu)
    return _said([_told(same) for same in by_state.values()], "the GPUs as NVML tells them")


def _said(entries: list[dict[str, Any]], where: str) -> list[Said]:
    config = Said(("mig", "config"), {"version": "v1", "mig-configs": {LAYOUT: entries}}, where)
    return [Said(("mig", "layout"), LAYOUT, where), config] if entries and is_allowed(config) else []


def _told(gpus: list[MigGpu]) -> dict[str, Any]:
    return _entry([gpu.index for gpu in gpus], gpus[0].devices, is_enabled=bool(gpus[0].enabled))


def _written(entry: dict[str, Any]) -> dict[str, Any]:
    filters = {"device-filter": entry["deviceFilter"]} if entry.get("deviceFilter") else {}
    is_enabled = entry.get("migEnabled") is True
    return {**filters, **_entry(entry.get("devices"), entry.get("migDevices") or {}, is_enabled=is_enabled)}


def _entry(devices: object, mig_devices: object, *, is_enabled: bool) -> dict[str, Any]:
    return {"devices": devices, "mig-enabled": is_enabled, **({"mig-devices": mig_devices} if is_enabled else {})}
