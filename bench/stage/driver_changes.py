"""The driver changes that benchmarks measure: two versions, with a module of DKMS or with one that is there already."""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import TYPE_CHECKING

from provision.driver_change import DriverChange, ModuleTarget, PackageVersion

if TYPE_CHECKING:
    from pathlib import Path

    from lab.nodes import Node

PROGRAM = "/usr/lib/grapnel/driver/grapnel-driver"
INCOMING = "var/lib/grapnel/driver/incoming"
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


def hand_over(node: Node, identifier: str, archive: Path) -> None:
    """Put a built module where the files of a bundle go."""
    folder = node.root / INCOMING / identifier
    place = f"modules/{node.kernel_release}.tar.gz"
    folder.joinpath("modules").mkdir(parents=True, exist_ok=True)
    shutil.copy(archive, folder / place)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    folder.joinpath("list.json").write_text(json.dumps({place: digest}))
