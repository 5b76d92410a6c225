"""Names the driver's packages on Ubuntu 22.04, 24.04 and 26.04."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from provision.declaration.spec.model import DriverSource
from provision.planning.architecture import AARCH64
from provision.planning.driver.packages.distribution import Distribution
from provision.planning.driver.packages.distributions import nvidia_apt, runfile
from provision.planning.driver.packages.members import Members
from provision.planning.driver.packages.package_set import ModulePackages, PackageSet
from provision.planning.driver.terms import WITHOUT_PROPRIETARY, Flavour, Manager

_EVIDENCE: Final = (
    "NVIDIA/gpu-driver-container, ubuntu24.04/precompiled/nvidia-driver and local-repo.sh; "
    "debian/templates of NVIDIA/ubuntu-packaging-nvidia-driver"
)


def _archive(branch: int) -> PackageSet:
    """Return what Ubuntu's archive has of a server branch, the modules built by DKMS."""
    flavour, end = f"{branch}-server", f"-{branch}-server"
    main = f"nvidia-graphics-drivers-{flavour}"
    modules = {
        # DKMS calls the module of a server branch nvidia-srv (`dkms status` on Ubuntu 24.04 with 580.178.04).
        Flavour.OPEN: ModulePackages(
            built=(f"nvidia-dkms-{flavour}-open",),
            dkms="nvidia-srv",
            meta=(f"nvidia-driver-{flavour}-open", f"nvidia-headless-{flavour}-open"),
        ),
        Flavour.PROPRIETARY: ModulePackages(
            built=(f"nvidia-dkms-{flavour}",),
            dkms="nvidia-srv",
            meta=(f"nvidia-driver-{flavour}", f"nvidia-headless-{flavour}"),
        ),
    }
    return PackageSet(
        evidence=_EVIDENCE,
        members=Members(
            sources=(main,),
            exact=(main,),
            names=(f"nvidia-fabricmanager-{branch}", f"libnvidia-nscq-{branch}", f"nvidia-imex-{branch}"),
            # Every branch has package names of its own, and conflicts with the others.
            replaced=("*nvidia*-[1-9][0-9][0-9]", "*nvidia*-[1-9][0-9][0-9]-*"),
        ),
        user_space=nvidia_apt.ubuntu_user_space(end),
        modules={key: value for key, value in modules.items() if key is Flavour.OPEN or branch < WITHOUT_PROPRIETARY},
        companions=nvidia_apt.companions(f"-{branch}", persistenced=f"nvidia-compute-utils{end}"),
    )


def _canonical(branch: int) -> PackageSet:
    """Return the same with Canonical's compiled and signed modules, one package for each kernel.

    These have the kernel's version, not the driver's. Signatures are apart from objects, so that the archive can be
    rebuilt by others.
    """
    archive = _archive(branch)
    ready = {key: _with_ready(f"{branch}-server", key, module) for key, module in archive.modules.items()}
    return replace(archive, modules=ready)


def _with_ready(branch: str, flavour: Flavour, module: ModulePackages) -> ModulePackages:
    opened = f"{branch}-open" if flavour is Flavour.OPEN else branch
    objects = () if flavour is Flavour.OPEN else (f"linux-objects-nvidia-{branch}-{{kernel}}",)
    return replace(
        module,
        ready=(f"nvidia-headless-no-dkms-{opened}",),
        ready_loose=(
            f"linux-modules-nvidia-{opened}-{{kernel}}",
            *objects,
            "linux-signatures-nvidia-{kernel}",
        ),
    )


def _release(version_id: str, codename: str) -> Distribution:
    return Distribution(
        id="ubuntu",
        version_id=version_id,
        codename=codename,
        manager=Manager.APT,
        repository=f"ubuntu{version_id.replace('.', '')}",
        offers={
            DriverSource.DISTRIBUTION: _archive,
            DriverSource.CANONICAL: _canonical,
            DriverSource.NVIDIA: nvidia_apt.ubuntu,
            DriverSource.RUNFILE: runfile.offer,
        },
    )


# Canonical signs the server branches for both (NVIDIA/gpu-driver-container, .github/precompiled-matrix-config.json).
_RELEASES: Final = (_release("22.04", "jammy"), _release("24.04", "noble"), _release("26.04", "resolute"))
RELEASES: Final = (*_RELEASES, *(replace(each, architecture=AARCH64) for each in _RELEASES))
