"""Names the driver's packages on SUSE Linux Enterprise Server 15."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from provision.declaration.spec.model import Capability, Companion, DriverSource
from provision.planning.architecture import AARCH64
from provision.planning.driver.packages.distribution import Distribution
from provision.planning.driver.packages.distributions.metas import OPEN_METAS, PROPRIETARY_METAS
from provision.planning.driver.packages.members import Members
from provision.planning.driver.packages.package_set import CompanionPackages, ModulePackages, PackageSet
from provision.planning.driver.terms import WITHOUT_PROPRIETARY, Flavour, Manager

_EVIDENCE: Final = (
    "src/bci_build/package/nvidia.py of SUSE/BCI-dockerfile-generator, which SUSE builds its driver containers from; "
    "preamble of nvidia-open-driver-G06-signed: it needs kernel-firmware-nvidia-gspx-G06"
)
# SUSE numbers generations of its packages; these are the first branches of a generation, of packages that are compiled
# with DKMS (KMPs before), of unsuffixed companions, and of open modules that come compiled only (the same source).
_G07: Final = 590
_DKMS: Final = 575
_UNSUFFIXED_COMPANIONS: Final = 580
_READY_ONLY: Final = 595
# nvidia-open-driver-G06-signed.spec: its cuda variant, for NVIDIA's repository, begins with 565.57.01.
_READY: Final = 565
_SPLIT: Final = 570


def _nvidia(branch: int) -> PackageSet:
    """Return NVIDIA's repository sles15, with SUSE's signed modules, which are in SUSE's own updates."""
    generation = "G07" if branch >= _G07 else "G06"
    return PackageSet(
        evidence=_EVIDENCE,
        members=Members(names=("*nvidia*", "cuda-drivers*", "libnvsdm*", "nvlink5*")),
        user_space={
            Capability.COMPUTE: (f"nvidia-compute-{generation}",),
            Capability.UTILITY: (f"nvidia-compute-utils-{generation}",),
            Capability.VIDEO: (f"nvidia-video-{generation}",),
            Capability.GRAPHICS: (f"nvidia-gl-{generation}",),
            Capability.DISPLAY: (f"nvidia-gl-{generation}",),
        },
        modules=_modules(branch, generation),
        companions=_companions(branch),
    )


def _modules(branch: int, generation: str) -> dict[Flavour, ModulePackages]:
    firmware = () if branch >= _SPLIT else (f"kernel-firmware-nvidia-gspx-{generation}",)
    name = f"nvidia-open-driver-{generation}" if branch >= _DKMS else f"nvidia-open-driver-{generation}-kmp-{{variant}}"
    opened = ModulePackages(
        built=() if branch >= _READY_ONLY else (*firmware, name),
        dkms="nvidia" if _DKMS <= branch < _READY_ONLY else None,
        meta=OPEN_METAS,
        ready=(f"nvidia-open-driver-{generation}-signed-cuda-kmp-{{variant}}",) if branch >= _READY else (),
    )
    if branch >= WITHOUT_PROPRIETARY:
        return {Flavour.OPEN: opened}
    name = f"nvidia-driver-{generation}" if branch >= _DKMS else f"nvidia-driver-{generation}-kmp-{{variant}}"
    proprietary = ModulePackages(built=(name,), dkms="nvidia" if branch >= _DKMS else None, meta=PROPRIETARY_METAS)
    return {Flavour.OPEN: opened, Flavour.PROPRIETARY: proprietary}


def _companions(branch: int) -> dict[Companion, CompanionPackages]:
    end = "" if branch >= _UNSUFFIXED_COMPANIONS else f"-{branch}"
    companions = {
        Companion.NSCQ: CompanionPackages(packages=(f"libnvidia-nscq{end}",)),
        Companion.IMEX: CompanionPackages(packages=(f"nvidia-imex{end}",), services=("nvidia-imex.service",)),
        Companion.PEERMEM: CompanionPackages(modules=("nvidia-peermem",)),
    }
    if branch >= _SPLIT:
        companions[Companion.PERSISTENCED] = CompanionPackages(
            packages=("nvidia-persistenced",), services=("nvidia-persistenced.service",)
        )
    if branch >= _UNSUFFIXED_COMPANIONS:
        companions[Companion.FABRICMANAGER] = CompanionPackages(
            packages=("nvidia-fabricmanager",), services=("nvidia-fabricmanager.service",)
        )
    return companions


_SLES_15: Final = Distribution(
    id="sles",
    version_id="15",
    codename="",
    manager=Manager.ZYPPER,
    repository="sles15",
    offers={DriverSource.NVIDIA: _nvidia},
)
RELEASES: Final = (_SLES_15, replace(_SLES_15, architecture=AARCH64))
