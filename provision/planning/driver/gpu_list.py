"""Parses and writes the list of supported GPUs: our own data file, and the one that comes with a driver.

Pure: text in, values out. `make supported-gpus FILE=...` renews the data file (``tasks/generated/supported_gpus.py``).
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import msgspec

from provision.base.decoding import decoder_of
from provision.planning.driver.terms import LAST_BEFORE_TURING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# 470 is the last branch for Kepler; what is older is in no machine that this is for.
_OLDEST_LEGACY: Final = 470
# NVIDIA gives the variants of one chip device ids of one range (gpu/devid_chips.py of NVIDIA/gpu-admin-tools).
_CHIP: Final = 0xFF80


class Group(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """GPUs that the same drivers support: names by ``device`` or ``device:subvendor:subdevice``, lower case.

    ``open`` and ``proprietary`` are the flavours of the kernel module; ``oldest`` and ``newest`` the first and last
    branch, None where the list knows no limit.
    """

    open: bool
    proprietary: bool
    oldest: int | None
    newest: int | None
    gpus: dict[str, str]


class GpuList(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The data file: its day, where the data are from, and the GPUs."""

    schema: str
    date: str
    sources: tuple[str, ...]
    groups: tuple[Group, ...]


class _Chip(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of ``supported-gpus.json``, as NVIDIA writes it."""

    devid: str
    name: str
    features: tuple[str, ...] = ()
    subdevid: str = ""
    subvendorid: str = ""
    legacybranch: str = ""


class _Shipped(msgspec.Struct, frozen=True, kw_only=True):
    chips: tuple[_Chip, ...]


def parse_list(text: bytes) -> GpuList:
    """Parse our own data file."""
    return decoder_of(GpuList).decode(text)


def renew_list(shipped: bytes, present: GpuList, *, date: str, source: str) -> GpuList:
    """Return the list that a driver's own ``supported-gpus.json`` makes.

    The first branch of a chip is not in it: it is carried over from the present list. Raises `msgspec.MsgspecError`
    when the file is not such a list.
    """
    chips = [chip for chip in decoder_of(_Shipped).decode(shipped).chips if _is_listed(chip)]
    oldest = _oldest_branches(present)
    rows: dict[tuple[bool, bool, int | None, int | None], dict[str, dict[str, str]]] = defaultdict(dict)
    for chip in chips:
        device = _hex(chip.devid)
        is_open = "kernelopen" in chip.features
        proprietary = not is_open or "gsp_proprietary_supported" in chip.features
        newest = _legacy(chip) or (None if is_open else LAST_BEFORE_TURING)
        key = (is_open, proprietary, oldest.get(int(device, 16) & _CHIP), newest)
        names = rows[key].setdefault(device, {})
        names[_key(device, chip)] = chip.name
    groups = tuple(
        Group(open=key[0], proprietary=key[1], oldest=key[2], newest=key[3], gpus=_fold(devices.values()))
        for key, devices in sorted(rows.items(), key=lambda row: min(row[1]))
    )
    return GpuList(schema=present.schema, date=date, sources=(source,), groups=groups)


def render_list(gpus: GpuList) -> str:
    """Return the data file, one GPU a line, so that a renewal can be read as a difference."""
    head = {"schema": gpus.schema, "date": gpus.date, "sources": list(gpus.sources)}
    groups = []
    for group in gpus.groups:
        flags = json.dumps(
            {"open": group.open, "proprietary": group.proprietary, "oldest": group.oldest, "newest": group.newest}
        )
        lines = ",\n".join(f"   {json.dumps(key)}: {json.dumps(name)}" for key, name in group.gpus.items())
        groups.append(f'  {flags[:-1]}, "gpus": {{\n{lines}\n  }}}}')
    return f'{json.dumps(head, indent=1)[:-2]},\n "groups": [\n' + ",\n".join(groups) + "\n ]\n}\n"


def _is_listed(chip: _Chip) -> bool:
    return (_legacy(chip) or LAST_BEFORE_TURING) >= _OLDEST_LEGACY


def _legacy(chip: _Chip) -> int | None:
    branch = chip.legacybranch.partition(".")[0]
    return int(branch) if branch else None


def _oldest_branches(present: GpuList) -> dict[int, int | None]:
    return {int(key[:4], 16) & _CHIP: group.oldest for group in present.groups for key in group.gpus}


def _hex(text: str) -> str:
    return text.lower().removeprefix("0x")


def _key(device: str, chip: _Chip) -> str:
    return f"{device}:{_hex(chip.subvendorid)}:{_hex(chip.subdevid)}" if chip.subdevid else device


def _fold(devices: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return names by key; a subsystem that is called like its device is left out, and so is one name for all."""
    folded: dict[str, str] = {}
    for names in sorted(devices, key=min):
        device = min(names)[:4]
        base = names.get(device) or (next(iter(names.values())) if len(set(names.values())) == 1 else None)
        if base is not None:
            folded[device] = base
        folded |= {key: name for key, name in sorted(names.items()) if key != device and name != base}
    return folded
