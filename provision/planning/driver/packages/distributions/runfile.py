"""Names the packages that grapnel makes of NVIDIA's installer files (``supply.runfile``), on systems with apt."""

from __future__ import annotations

from typing import Final

from provision.declaration.spec.model import Capability, Companion
from provision.planning.driver.packages.distributions import nvidia_apt
from provision.planning.driver.packages.members import Members
from provision.planning.driver.packages.package_set import CompanionPackages, ModulePackages, PackageSet
from provision.planning.driver.terms import Flavour

# Names of no distribution: the packages exclude those that bring the same files, and never replace them by accident.
SOURCE: Final = "nvidia-runfile"
USER_SPACE: Final = "nvidia-runfile"
PERSISTENCED: Final = "nvidia-runfile-persistenced"
MODULES: Final = {Flavour.PROPRIETARY: "nvidia-runfile-dkms", Flavour.OPEN: "nvidia-runfile-open-dkms"}
ALL: Final = (USER_SPACE, PERSISTENCED, *MODULES.values())
PATTERNS: Final = (USER_SPACE, f"{USER_SPACE}-*")
PERSISTENCED_UNIT: Final = "nvidia-persistenced.service"
# Of how packages are made: a later grapnel that makes them otherwise gives them another version.
REVISION: Final = 1
_DIGITS: Final = 8
_DKMS: Final = {Flavour.PROPRIETARY: "nvidia-runfile", Flavour.OPEN: "nvidia-runfile-open"}


def package_version(version: str, sha256: str) -> str:
    """Return the version of a runfile's packages: two files of one driver version are two different drivers."""
    return f"{version}-{REVISION}+r{sha256[:_DIGITS]}"


def dkms_name(flavour: Flavour, sha256: str) -> str:
    """Return what DKMS calls a runfile's module: one that was built of another file is never taken for it."""
    return f"{_DKMS[flavour]}-{sha256[:_DIGITS]}"


def depends_of(name: str, version: str) -> tuple[str, ...]:
    """Return what a package declares to need; versions stand where it must be the same file's."""
    if name in MODULES.values():
        return ("dkms",)
    return (f"{USER_SPACE} (= {version})",) if name == PERSISTENCED else ("libc6",)


def offer(_branch: int) -> PackageSet:
    """Return what a runfile has, whatever its branch: its own files, and no companion but those among them."""
    return PackageSet(
        evidence="made by provision.planning.supply.runfile of the file itself",
        members=Members(sources=(SOURCE,), exact=(SOURCE,), others=(nvidia_apt.MEMBERS,)),
        user_space=dict.fromkeys((Capability.COMPUTE, Capability.UTILITY, Capability.VIDEO), (USER_SPACE,)),
        modules={flavour: ModulePackages(built=(name,), dkms=_DKMS[flavour]) for flavour, name in MODULES.items()},
        companions={
            Companion.PERSISTENCED: CompanionPackages(packages=(PERSISTENCED,), services=(PERSISTENCED_UNIT,)),
            Companion.PEERMEM: CompanionPackages(modules=("nvidia-peermem",)),
        },
    )
