"""Names the driver's packages on RHEL, Rocky Linux and AlmaLinux 8, 9 and 10."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import DriverSource
from provision.planning.architecture import AARCH64
from provision.planning.driver.packages.distribution import Distribution
from provision.planning.driver.packages.distributions import nvidia_dnf
from provision.planning.driver.terms import Manager

if TYPE_CHECKING:
    from provision.planning.driver.packages.package_set import PackageSet

_IDS: Final = ("rhel", "rocky", "almalinux")


def _modular(branch: int) -> PackageSet:
    return nvidia_dnf.packages(branch, modular=True)


def _flat(branch: int) -> PackageSet:
    """Return what version 10 has: dnf there has no modules, branches are told apart by a version lock."""
    return nvidia_dnf.packages(branch, modular=False)


def _release(name: str, version_id: str) -> Distribution:
    return Distribution(
        id=name,
        version_id=version_id,
        codename="",
        manager=Manager.DNF,
        repository=f"rhel{version_id}",
        offers={DriverSource.NVIDIA: _flat if version_id == "10" else _modular},
    )


_RELEASES: Final = tuple(_release(name, version_id) for name in _IDS for version_id in ("8", "9", "10"))
RELEASES: Final = (*_RELEASES, *(replace(each, architecture=AARCH64) for each in _RELEASES))
