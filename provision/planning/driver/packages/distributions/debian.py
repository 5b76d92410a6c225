"""Names the driver's packages on Debian 12 and 13."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from provision.declaration.spec.model import Capability, Companion, DriverSource
from provision.planning.architecture import AARCH64
from provision.planning.driver.packages.distribution import Distribution
from provision.planning.driver.packages.distributions import nvidia_apt, runfile
from provision.planning.driver.packages.members import Members
from provision.planning.driver.packages.package_set import CompanionPackages, ModulePackages, PackageSet
from provision.planning.driver.terms import Flavour, Manager

# Debian builds the driver from one source, whose packages need each other at one full version. The open kernel modules
# are a source of their own, bound by the upstream version alone (`firmware-nvidia-gsp (= 550.163.01)`).
_DRIVER: Final = "nvidia-graphics-drivers"
_MEMBERS: Final = Members(sources=(_DRIVER, "nvidia-open-gpu-kernel-modules"), exact=(_DRIVER,))
# That NVIDIA has a folder debian12/sbsa with drivers in it could not be verified; debian13/sbsa has 595 and 610.
_WITHOUT_SBSA: Final = frozenset({"12"})
_EVIDENCE: Final = (
    "control and dkms.conf of nvidia-kernel-dkms, nvidia-open-kernel-dkms and nvidia-persistenced 550.163.01, "
    "Packages files of bookworm and trixie (November 2026)"
)


def _own(_branch: int) -> PackageSet:
    """Return what Debian's non-free has: one branch in each release, and no companion but nvidia-persistenced.

    What these packages need of the same source follows by itself; recommended packages (the kernel module among them)
    do not. nvidia-persistenced is a source with a version line of its own (535.171.04 beside driver 535.261.03).
    """
    return PackageSet(
        evidence=_EVIDENCE,
        members=_MEMBERS,
        user_space={
            Capability.COMPUTE: ("libcuda1",),
            Capability.UTILITY: ("libnvidia-ml1", "nvidia-smi"),
            Capability.VIDEO: ("libnvcuvid1", "libnvidia-encode1", "libnvidia-opticalflow1"),
            Capability.GRAPHICS: ("nvidia-driver-libs", "nvidia-vulkan-icd", "libgles-nvidia2"),
            Capability.DISPLAY: ("nvidia-driver-libs",),
            Capability.NGX: ("libnvidia-ngx1",),
        },
        modules={
            # The support packages stand behind virtual ones (nvidia-kernel-support--v1), so they are named; the
            # module needs firmware-nvidia-gsp of its own version, which the closure finds.
            Flavour.OPEN: ModulePackages(
                built=("nvidia-open-kernel-dkms", "nvidia-open-kernel-support"), dkms="nvidia-current-open"
            ),
            Flavour.PROPRIETARY: ModulePackages(
                built=("nvidia-kernel-dkms", "nvidia-kernel-support"), dkms="nvidia-current"
            ),
        },
        companions={
            Companion.PERSISTENCED: CompanionPackages(
                packages=("libnvidia-cfg1",), loose=("nvidia-persistenced",), services=("nvidia-persistenced.service",)
            ),
            Companion.PEERMEM: CompanionPackages(modules=("nvidia-peermem",)),
        },
    )


def _own_aarch64(branch: int) -> PackageSet:
    """Return the same for arm64: all but libnvidia-ngx1 (Packages files of bookworm and trixie, arm64)."""
    own = _own(branch)
    return replace(own, user_space={key: names for key, names in own.user_space.items() if key is not Capability.NGX})


def _release(version_id: str, codename: str) -> Distribution:
    return Distribution(
        id="debian",
        version_id=version_id,
        codename=codename,
        manager=Manager.APT,
        repository=f"debian{version_id}",
        offers={
            DriverSource.DISTRIBUTION: _own,
            DriverSource.NVIDIA: nvidia_apt.debian,
            DriverSource.RUNFILE: runfile.offer,
        },
        # Side branches with package names of their own: nvidia-graphics-drivers-tesla-535.
        other_drivers=(f"{_DRIVER}-*",),
    )


def _aarch64(release: Distribution) -> Distribution:
    offers = {DriverSource.DISTRIBUTION: _own_aarch64, DriverSource.RUNFILE: runfile.offer}
    if release.version_id not in _WITHOUT_SBSA:
        offers[DriverSource.NVIDIA] = nvidia_apt.debian
    return replace(release, offers=offers, architecture=AARCH64)


_RELEASES: Final = (_release("12", "bookworm"), _release("13", "trixie"))
RELEASES: Final = (*_RELEASES, *map(_aarch64, _RELEASES))
