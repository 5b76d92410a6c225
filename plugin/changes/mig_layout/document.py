"""Reads the declared layout: contract `docs/contracts/mig-layout`. Pure.

The format is one named configuration of NVIDIA's mig-parted (api/spec/v1) with keys in camel case, and has its rules.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from plugin.base.documents import list_of, member, members, read_object, text, truth, whole
from plugin.changes.mig_layout.model import Entry, Layout, parse_profile

if TYPE_CHECKING:
    from plugin.changes.mig_layout.model import DeviceProfile

MAX_BYTES = 256 * 1024
_VERSION = 1
_MAX_ENTRIES = 1024
_MAX_DEVICES = 4096
_MAX_COUNT = 65
_PCI_ID = re.compile(r"0[xX](?P<device>[0-9a-fA-F]{8})(?::0[xX](?P<subsystem>[0-9a-fA-F]{8}))?")
_KEYS = {"deviceFilter", "devices", "migEnabled", "migDevices"}


def parse_layout(content: bytes) -> Layout:
    """Return what a file declares; raises ValueError."""
    document = read_object(content, MAX_BYTES)
    _refuse_unknown(document.keys() - {"version", "layouts"})
    if member(document, "version", whole()) != _VERSION:
        raise ValueError(f"version must be {_VERSION}")
    entries = member(document, "layouts", list_of(_parse_entry, _MAX_ENTRIES))
    if not entries:
        raise ValueError("layouts must have an entry")
    return Layout(entries)


def _refuse_unknown(keys: set[str]) -> None:
    if keys:
        raise ValueError(f"{min(keys)[:64]} is not a known key")


def _parse_entry(value: object) -> Entry:
    _refuse_unknown(members(value).keys() - _KEYS)
    is_enabled = member(value, "migEnabled", truth)
    if is_enabled and "migDevices" not in members(value):
        raise ValueError("migDevices is missing: {} is mig mode without devices")
    wanted = member(value, "migDevices", _parse_wanted, ())
    if wanted and not is_enabled:
        raise ValueError("migDevices must not be there where migEnabled is false")
    return Entry(
        member(value, "devices", parse_devices), member(value, "deviceFilter", parse_filters, ()), is_enabled, wanted
    )


def parse_devices(value: object) -> tuple[int, ...] | None:
    """Return the indices of GPUs, None for all."""
    if value == "all":
        return None
    if not isinstance(value, list) or not value:
        raise ValueError('must be "all" or a list of indices of gpus')
    return list_of(whole(0, _MAX_DEVICES))(value)


def parse_filters(value: object) -> tuple[tuple[int, int | None], ...]:
    """Return pairs of PCI device and subsystem id, None for any subsystem."""
    filters = list_of(_parse_filter, _MAX_ENTRIES)([value] if isinstance(value, str) else value)
    if not filters:
        raise ValueError("must have an entry")
    return filters


def _parse_filter(value: object) -> tuple[int, int | None]:
    match = _PCI_ID.fullmatch(text()(value))
    if match is None:
        raise ValueError("must be pci ids such as 0x233010DE or 0x233010DE:0x16C110DE")
    return int(match["device"], 16), None if match["subsystem"] is None else int(match["subsystem"], 16)


def _parse_wanted(value: object) -> tuple[DeviceProfile, ...]:
    """Return one profile for each device; two ways to write the same one are one."""
    counts: dict[DeviceProfile, int] = {}
    for name in members(value):
        profile = parse_profile(name)
        if profile in counts:
            raise ValueError(f"{name[:64]} is named twice, as {profile.name}")
        counts[profile] = member(value, name, whole(0, _MAX_COUNT))
    if counts and not any(counts.values()):
        raise ValueError("must ask for a device: all numbers are 0")
    return tuple(profile for profile, count in counts.items() for _ in range(count))
