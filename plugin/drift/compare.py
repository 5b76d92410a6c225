"""Tells what is from what was brought about. Pure; the rules are those of `grapnel plan`, which mends it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from plugin.drift.model import Absent, Difference, DriftKind, File

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plugin.drift.model import Declared, Found

_ROOT = "0:0"
_RUNNING = ("active", "activating", "reloading")
_NOT_AT_BOOT = ("", "disabled")
_SHORT = 12  # digits of a digest that people are shown


def compare(declared: Declared, found: Found) -> tuple[Difference, ...]:
    """Return every difference, in an order that is the same for the same node."""
    mend = _mend(declared, found)
    return (
        *_packages(declared, found, mend),
        *_files(declared, found, mend),
        *_units(declared, found, mend),
        *_module(declared, found, mend),
        *_software(declared, found, mend),
        *_devices(found),
    )


def _mend(declared: Declared, found: Found) -> str:
    """Return the command for the controller: an edited file stops a whole node, until a person has it overwritten."""
    there = (found.files[wanted.path] for wanted in declared.files if wanted.mark)
    is_stopped = any(isinstance(each, File) and each.is_edited for each in there)
    return f"grapnel apply{' --force' if is_stopped else ''} {shlex.quote(declared.node)}"


def _packages(declared: Declared, found: Found, mend: str) -> Iterator[Difference]:
    for wanted in declared.packages:
        there = found.packages.get(wanted.name)
        if there is None:
            yield Difference(DriftKind.VERSION, wanted.name, "not installed", wanted.version, None, mend)
            continue
        if there.version != wanted.version:
            yield Difference(DriftKind.VERSION, wanted.name, there.version, wanted.version, there.changed, mend)
        elif there.state != "installed":
            yield Difference(DriftKind.VERSION, wanted.name, there.state, wanted.version, there.changed, mend)
        if there.is_held != wanted.hold:
            words = ("held", "not held")
            yield Difference(DriftKind.HOLD, wanted.name, words[wanted.hold], words[not wanted.hold], None, mend)


def _files(declared: Declared, found: Found, mend: str) -> Iterator[Difference]:
    for wanted in declared.files:
        there = found.files[wanted.path]
        if isinstance(there, Absent):
            yield Difference(DriftKind.FILE, wanted.path, "absent", "there", there.changed, mend)
            continue
        if there.sha256 != wanted.sha256:
            was, is_to_be = f"content {there.sha256[:_SHORT]}", f"content {wanted.sha256[:_SHORT]}"
            yield Difference(DriftKind.FILE, wanted.path, was, is_to_be, there.changed, mend)
        if there.owner != _ROOT:
            yield Difference(DriftKind.FILE, wanted.path, f"owner {there.owner}", f"owner {_ROOT}", there.changed, mend)
        if there.mode != wanted.mode:
            yield Difference(
                DriftKind.FILE, wanted.path, f"mode {there.mode}", f"mode {wanted.mode}", there.changed, mend
            )


def _units(declared: Declared, found: Found, mend: str) -> Iterator[Difference]:
    for name in declared.units:
        there = found.units.get(name)
        if there is None:
            yield Difference(DriftKind.SERVICE, name, "not installed", "active", None, mend)
            continue
        if there.enabled in _NOT_AT_BOOT:
            yield Difference(DriftKind.SERVICE, name, there.enabled or "not installed", "enabled", there.changed, mend)
        if there.active not in _RUNNING:
            yield Difference(DriftKind.SERVICE, name, there.active, "active", there.changed, mend)


def _module(declared: Declared, found: Found, mend: str) -> Iterator[Difference]:
    if declared.module and found.module != declared.module:
        yield Difference(DriftKind.MODULE, "nvidia", found.module or "not loaded", declared.module, None, mend)


def _software(declared: Declared, found: Found, mend: str) -> Iterator[Difference]:
    for part, digest in sorted(declared.software.items()):
        there = found.software.get(part, "")
        if there != digest:
            yield Difference(DriftKind.SOFTWARE, part, there[:_SHORT] or "not installed", digest[:_SHORT], None, mend)


def _devices(found: Found) -> Iterator[Difference]:
    """Yield device nodes that are gone. The driver's own program makes them again, which `apply` does not ask for."""
    for path, is_there in sorted(found.devices.items()):
        if not is_there:
            yield Difference(DriftKind.DEVICE_NODE, path, "absent", "there", None, _making(path))


def _making(path: str) -> str:
    number = path.removeprefix("/dev/nvidia")
    return f"nvidia-modprobe -c {number}" if number.isdecimal() else "nvidia-modprobe -c 255"
