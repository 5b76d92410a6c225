"""Writes the entries of zypper's locks (``/etc/zypp/locks``, zypper(8) "Package Locks Management").

A lock keeps a package as it is, installed or not, whatever its version: zypper knows no version in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from provision.planning.driver_change import PackageVersion

LOCK_PATH: Final = "/etc/zypp/locks"


def lock_entries(packages: Iterable[PackageVersion]) -> tuple[str, ...]:
    """Return one entry for each package, as zypper writes it: entries are separated by an empty line."""
    return tuple(_entry(package.name) for package in packages)


def _entry(name: str) -> str:
    return f"type: package\nmatch_type: glob\ncase_sensitive: on\nsolvable_name: {name}\n"
