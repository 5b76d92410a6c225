"""Writes the entries of dnf's version lock (``/etc/dnf/plugins/versionlock.list``).

The form is the one that ``dnf versionlock`` writes itself (Driver Installation Guide, "Version locking"):
``kmod-nvidia-open-dkms-3:575.51-1.fc41.*``, epoch always, architecture any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.planning.driver.versions.rpm import RpmVersion

if TYPE_CHECKING:
    from collections.abc import Iterable

    from provision.planning.driver_change import PackageVersion

LOCK_PATH: Final = "/etc/dnf/plugins/versionlock.list"


def lock_entries(packages: Iterable[PackageVersion]) -> tuple[str, ...]:
    """Return the entries that keep packages at exactly their version, in the packages' order."""
    return tuple(_entry(package) for package in packages)


def _entry(package: PackageVersion) -> str:
    version = RpmVersion(package.version)
    return f"{package.name}-{version.epoch}:{version.version}-{version.release}.*"
