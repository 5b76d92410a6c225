"""Names the driver's packages on Amazon Linux 2023."""

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


def _nvidia(branch: int) -> PackageSet:
    return nvidia_dnf.packages(branch, modular=True)


def _own(branch: int) -> PackageSet:
    """Return what Amazon's own repository of NVIDIA packages has: the same packages (release notes), no streams."""
    return nvidia_dnf.packages(branch, modular=False)


_2023: Final = Distribution(
    id="amzn",
    version_id="2023",
    codename="",
    manager=Manager.DNF,
    repository="amzn2023",
    offers={DriverSource.NVIDIA: _nvidia, DriverSource.DISTRIBUTION: _own},
)
# Whether Amazon's own repository has a driver for Arm could not be verified; NVIDIA's amzn2023/sbsa has.
RELEASES: Final = (_2023, replace(_2023, offers={DriverSource.NVIDIA: _nvidia}, architecture=AARCH64))
