"""Renders the node's MIG layout, ``/etc/grapnel/mig-layout.json`` (contract ``docs/contracts/mig-layout``)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from provision.declaration.spec.values.mig_profiles import parse_profile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.declaration.spec.model import MigEntry, StackSpec

MIG_LAYOUT_PATH = "/etc/grapnel/mig-layout.json"


def chosen_entries(stack: StackSpec) -> Sequence[MigEntry]:
    """Return the entries of the node's layout, nothing where none is chosen."""
    mig = stack.mig
    return () if mig.layout is None or mig.config is None else mig.config.mig_configs.get(mig.layout, ())


def render_mig_layout(stack: StackSpec) -> str | None:
    """Return the file's text, None where no layout is chosen."""
    entries = [_entry(entry) for entry in chosen_entries(stack)]
    return json.dumps({"version": 1, "layouts": entries}, indent=2) + "\n" if entries else None


def _entry(entry: MigEntry) -> dict[str, Any]:
    return {
        **({"deviceFilter": [_pci_id(each) for each in entry.filters]} if entry.filters else {}),
        "devices": entry.devices if entry.devices == "all" else list(entry.devices),
        "migEnabled": entry.mig_enabled,
        "migDevices": wanted_devices(entry),
    }


def wanted_devices(entry: MigEntry) -> dict[str, int]:
    """Return the MIG devices of an entry by their short names, those without number left out."""
    named = ((parse_profile(name), count) for name, count in (entry.mig_devices or {}).items())
    return {str(profile): count for profile, count in named if profile is not None and count}


def _pci_id(text: str) -> str:
    return ":".join(f"0x{part[2:].upper()}" for part in text.split(":"))
