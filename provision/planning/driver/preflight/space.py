"""Finds file systems that are too full for a driver change, before it is found out in the middle of one.

Four sizes were measured with Debian's 535 and 550 drivers: a version's packages, the compiler and headers, one
kernel's modules, the same packed. The others are estimates, on the safe side.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from provision.planning.driver.preflight import codes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.planning.driver.preflight.codes import Finding
    from provision.planning.driver.preflight.situation import Situation

_MB: Final = 1_000_000
_DOWNLOAD: Final = 95 * _MB  # measured: packages of one version: module source 45, GSP firmware 39, libraries 11
_INSTALLED: Final = 3 * _DOWNLOAD  # estimated: what they unpack to; the old version is there until the new one is
_TOOLCHAIN: Final = 455 * _MB  # measured: compiler, make, DKMS and headers, where they are not there yet
_MODULE: Final = 65 * _MB  # measured: one kernel's modules, uncompressed
_ARCHIVE: Final = 43 * _MB  # measured: the same, packed
_BUILD: Final = 3 * _MODULE  # estimated: objects, the linked modules, the copy that is installed
_INITRAMFS: Final = 100 * _MB  # estimated: it is written beside the one that it replaces


def find_space(situation: Situation) -> Iterator[Finding]:
    """Yield each file system that has less left than the change needs."""
    change = situation.change
    if change is None or not change.packages:
        return
    shares: dict[int, list[str]] = defaultdict(list)  # folders of one file system have the same space left
    for place, free in situation.facts.disk_free.items():
        shares[free].append(place)
    needs = _needs(situation)
    for free, places in shares.items():
        need = sum(needs.get(place, 0) for place in places)
        if need > free:
            on = sorted(place for place in places if needs.get(place))
            yield codes.DISK_FULL.found(f"{' and '.join(on)}: {_mb(free)} free, {_mb(need)} needed")


def _needs(situation: Situation) -> dict[str, int]:
    """Return bytes by folder: the way back is staged too, and every kernel has its own modules."""
    change, tools = situation.change, situation.facts.build_tools
    kernels = len(change.kernels) if change is not None else 0
    has_toolchain = tools is not None and tools.dkms is not None
    staging = 0 if situation.is_staged else 2 * (_DOWNLOAD + kernels * _ARCHIVE)
    return {
        "/var": staging + (_BUILD * kernels if situation.builds_module else 0),
        "/usr": _INSTALLED + kernels * _MODULE + (_TOOLCHAIN if situation.builds_module and not has_toolchain else 0),
        "/boot": _INITRAMFS if kernels else 0,
        "/tmp": _ARCHIVE if situation.builds_module else 0,  # where `dkms mktarball` packs
    }


def _mb(size: int) -> str:
    return f"{size // _MB} MB"
