"""Names the driver's packages in NVIDIA's repositories for RHEL and its relatives."""

from __future__ import annotations

from typing import Final

from provision.declaration.spec.model import Capability, Companion
from provision.planning.driver.packages.distributions.metas import OPEN_METAS, PROPRIETARY_METAS
from provision.planning.driver.packages.members import Members
from provision.planning.driver.packages.package_set import CompanionPackages, ModulePackages, PackageSet
from provision.planning.driver.terms import WITHOUT_PROPRIETARY, Flavour

MEMBERS: Final = Members(names=("*nvidia*", "cuda-drivers*", "libnvsdm*", "nvlink5*"))
EVIDENCE: Final = (
    "nvidia-driver.spec (570) of NVIDIA/yum-packaging-nvidia-driver: which package has which files; Driver "
    "Installation Guide, compute-only: nvidia-driver-cuda with kmod-nvidia-open-dkms or kmod-nvidia-latest-dkms; "
    "release notes of Amazon Linux 2023.8.20250804 (570) and 2023.10.20260120 (580): names and versions of all"
)
# Release notes of Amazon Linux 2023: nvidia-fabric-manager and libnvidia-nscq-570 up to 570, nvidia-fabricmanager and
# libnvidia-nscq at 580; rhel9/precompiled/Dockerfile of NVIDIA/gpu-driver-container says the same for RHEL.
_RENAMED_COMPANIONS: Final = 580
# dkms.conf of 515 has nvidia-open, a log of Oracle Linux 8 has nvidia-open/570.86.10, one of Fedora nvidia/580.159.03.
_DKMS_OPEN_RENAMED: Final = 580
# Modules compiled for one kernel, in streams of their own (NVIDIA/yum-packaging-precompiled-kmod, DISTROS.md), which
# conflict with those that DKMS compiles.
_PRECOMPILED: Final = ("kmod-nvidia-[1-9]*", "kmod-nvidia-open-[1-9]*")


def packages(branch: int, *, modular: bool) -> PackageSet:
    """Return what there is of a branch; ``modular``: the repository has dnf module streams."""
    opened = ModulePackages(
        built=("kmod-nvidia-open-dkms",),
        dkms="nvidia" if branch >= _DKMS_OPEN_RENAMED else "nvidia-open",
        meta=(*OPEN_METAS, *_PRECOMPILED),
    )
    modules = {Flavour.OPEN: opened}
    if branch < WITHOUT_PROPRIETARY:
        modules[Flavour.PROPRIETARY] = ModulePackages(
            built=("kmod-nvidia-latest-dkms",), dkms="nvidia", meta=(*PROPRIETARY_METAS, *_PRECOMPILED)
        )
    return PackageSet(
        evidence=EVIDENCE,
        members=MEMBERS,
        user_space={
            # nvidia-smi is in nvidia-driver-cuda; that needs nvidia-kmod-common, and so some package of the module.
            Capability.COMPUTE: ("nvidia-driver-cuda-libs",),
            Capability.UTILITY: ("libnvidia-ml", "nvidia-driver-cuda"),
            Capability.VIDEO: ("nvidia-driver-cuda-libs",),
            Capability.GRAPHICS: ("nvidia-driver-libs",),
            Capability.DISPLAY: ("nvidia-driver", "libnvidia-fbc"),
            Capability.NGX: ("nvidia-driver-libs",),
        },
        modules=modules,
        companions=_companions(branch),
        streams=_streams(branch) if modular else {},
    )


def _streams(branch: int) -> dict[Flavour, str]:
    """Return the streams (Driver Installation Guide, "Kernel Modules"; rule of nvidia-driver-assistant)."""
    streams = {Flavour.OPEN: f"nvidia-driver:{branch}-open", Flavour.NONE: f"nvidia-driver:{branch}-open"}
    if branch < WITHOUT_PROPRIETARY:
        streams[Flavour.PROPRIETARY] = f"nvidia-driver:{branch}-dkms"
    return streams


def _companions(branch: int) -> dict[Companion, CompanionPackages]:
    renamed = branch >= _RENAMED_COMPANIONS
    end = "" if renamed else f"-{branch}"
    return {
        Companion.FABRICMANAGER: CompanionPackages(
            packages=("nvidia-fabricmanager" if renamed else "nvidia-fabric-manager",),
            services=("nvidia-fabricmanager.service",),
        ),
        Companion.NSCQ: CompanionPackages(packages=(f"libnvidia-nscq{end}",)),
        Companion.IMEX: CompanionPackages(packages=(f"nvidia-imex{end}",), services=("nvidia-imex.service",)),
        Companion.PERSISTENCED: CompanionPackages(
            packages=("nvidia-persistenced",), services=("nvidia-persistenced.service",)
        ),
        Companion.GDRCOPY: CompanionPackages(loose=("gdrcopy-kmod",), modules=("gdrdrv",)),
        Companion.PEERMEM: CompanionPackages(modules=("nvidia-peermem",)),
    }
