"""The driver changes that benchmarks measure: two versions, with a module of DKMS or with one that is there already."""

from __future__ import annotations

from provision.planning.driver_change import DriverChange, ModuleTarget, PackageVersion

PROGRAM = "/usr/lib/grapnel/driver/grapnel-driver"
OLD, NEW = "535.309.01", "550.163.01"
REVISIONS = {OLD: f"{OLD}-0+deb12u1", NEW: f"{NEW}-2"}
USER_SPACE = (
    "libcuda1",
    "libnvidia-ml1",
    "libnvidia-pkcs11-openssl3",
    "libnvidia-ptxjitcompiler1",
    "nvidia-alternative",
    "nvidia-legacy-check",
    "nvidia-smi",
)
DKMS_PACKAGES = tuple(sorted((*USER_SPACE, "firmware-nvidia-gsp", "nvidia-kernel-dkms", "nvidia-kernel-support")))


def make_change(version: str, packages: tuple[str, ...], kernel: str = "") -> DriverChange:
    """Return a change; without a kernel, the module is somebody else's."""
    return DriverChange(
        version=version,
        flavour="proprietary" if kernel else "none",
        manager="apt",
        packages=tuple(PackageVersion(name, REVISIONS[version]) for name in packages),
        kernels=(kernel,) if kernel else (),
        dkms="nvidia-current" if kernel else None,
        module=ModuleTarget(version=version),
    )
