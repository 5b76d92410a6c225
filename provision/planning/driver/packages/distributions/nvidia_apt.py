"""Names the driver's packages in NVIDIA's repositories for Debian and Ubuntu."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import Capability, Companion
from provision.planning.driver.packages.distributions.metas import OPEN_METAS, PROPRIETARY_METAS
from provision.planning.driver.packages.members import Members
from provision.planning.driver.packages.package_set import CompanionPackages, ModulePackages, PackageSet
from provision.planning.driver.terms import WITHOUT_PROPRIETARY, Flavour

if TYPE_CHECKING:
    from collections.abc import Mapping

# Packages of one driver have one version there; these names are all that has a driver's version (`Members`).
MEMBERS: Final = Members(
    names=(
        "*nvidia*",
        "cuda-drivers*",
        "libcuda1",
        "libcudadebugger1",
        "libnvcuvid1",
        "libnvoptix1",
        "libnvsdm*",
        "libxnvctrl*",
        "nvlink5*",
    )
)
# NVIDIA/gpu-driver-container, ubuntu24.04/precompiled/nvidia-driver: from 580 on without the branch's suffix.
_UNSUFFIXED_COMPANIONS: Final = 580
# Driver Installation Guide, "Recent Updates", "Ubuntu 590 and later packages".
_UNSUFFIXED_DRIVER: Final = 590


def debian(branch: int) -> PackageSet:
    """Return what NVIDIA's repositories debian12 and debian13 have."""
    return PackageSet(
        evidence="Driver Installation Guide, Debian, compute-only: nvidia-driver-cuda with nvidia-kernel-open-dkms or "
        "nvidia-kernel-dkms",
        members=MEMBERS,
        user_space={
            Capability.COMPUTE: ("nvidia-driver-cuda",),
            Capability.UTILITY: ("nvidia-driver-cuda",),
            Capability.VIDEO: ("libnvcuvid1", "libnvidia-encode1"),
            Capability.GRAPHICS: ("nvidia-driver-libs",),
            Capability.DISPLAY: ("nvidia-driver",),
        },
        modules=_both(
            branch,
            ModulePackages(built=("nvidia-kernel-open-dkms",), dkms="nvidia", meta=OPEN_METAS),
            ModulePackages(built=("nvidia-kernel-dkms",), dkms="nvidia", meta=PROPRIETARY_METAS),
        ),
        companions=_companions(branch, persistenced="nvidia-persistenced"),
    )


def ubuntu(branch: int) -> PackageSet:
    """Return what NVIDIA's repositories ubuntu2204, ubuntu2404 and ubuntu2604 have."""
    renamed = branch >= _UNSUFFIXED_DRIVER
    end = "" if renamed else f"-{branch}"
    user_space = dict(ubuntu_user_space(end))
    if renamed:
        # Published lists of installed packages of 595 have libnvidia-compute, nvidia-persistenced, nvidia-firmware and
        # nvidia-kernel-common; whether nvidia-smi is still in a package nvidia-utils none of them says.
        user_space[Capability.UTILITY] = ("nvidia-utils|libnvidia-compute",)
    return PackageSet(
        evidence="Driver Installation Guide, Ubuntu, compute-only, and its table of packages renamed with 590; "
        "NVIDIA/gpu-driver-container, ubuntu26.04/install.sh",
        members=MEMBERS,
        user_space=user_space,
        modules=_both(
            branch,
            ModulePackages(built=(f"nvidia-dkms{end}-open",), dkms="nvidia", meta=OPEN_METAS),
            ModulePackages(built=(f"nvidia-dkms{end}",), dkms="nvidia", meta=PROPRIETARY_METAS),
        ),
        companions=_companions(branch, persistenced="nvidia-persistenced" if renamed else f"nvidia-compute-utils{end}"),
    )


def ubuntu_user_space(end: str) -> Mapping[Capability, tuple[str, ...]]:
    """Return Ubuntu's packages by capability; their files are listed in NVIDIA/ubuntu-packaging-nvidia-driver."""
    return {
        Capability.COMPUTE: (f"libnvidia-compute{end}",),
        Capability.UTILITY: (f"nvidia-utils{end}",),
        Capability.VIDEO: (f"libnvidia-decode{end}", f"libnvidia-encode{end}"),
        Capability.GRAPHICS: (f"libnvidia-gl{end}",),
        Capability.DISPLAY: (f"libnvidia-gl{end}", f"libnvidia-fbc1{end}"),
        Capability.NGX: (f"libnvidia-gl{end}",),
    }


def _both(branch: int, opened: ModulePackages, proprietary: ModulePackages) -> dict[Flavour, ModulePackages]:
    modules = {Flavour.OPEN: opened, Flavour.PROPRIETARY: proprietary}
    return {key: value for key, value in modules.items() if key is Flavour.OPEN or branch < WITHOUT_PROPRIETARY}


def _companions(branch: int, *, persistenced: str) -> dict[Companion, CompanionPackages]:
    end = "" if branch >= _UNSUFFIXED_COMPANIONS else f"-{branch}"
    return companions(end, persistenced=persistenced)


def companions(end: str, *, persistenced: str) -> dict[Companion, CompanionPackages]:
    """Return the companions of a driver from apt; ``end`` is the branch's suffix.

    The daemons are of the packages' own units. gdrdrv is a module of NVIDIA/gdrcopy, which has packages of its own.
    """
    return {
        Companion.FABRICMANAGER: CompanionPackages(
            packages=(f"nvidia-fabricmanager{end}",), services=("nvidia-fabricmanager.service",)
        ),
        Companion.NSCQ: CompanionPackages(packages=(f"libnvidia-nscq{end}",)),
        Companion.IMEX: CompanionPackages(packages=(f"nvidia-imex{end}",), services=("nvidia-imex.service",)),
        Companion.PERSISTENCED: CompanionPackages(packages=(persistenced,), services=("nvidia-persistenced.service",)),
        Companion.GDRCOPY: CompanionPackages(loose=("gdrdrv-dkms",), modules=("gdrdrv",)),
        Companion.PEERMEM: CompanionPackages(modules=("nvidia-peermem",)),
    }
