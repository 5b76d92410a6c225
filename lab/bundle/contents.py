"""Lists the content of each suite's package folder: extend it when a node needs another package."""

from __future__ import annotations

from dataclasses import dataclass

DRIVER_PACKAGES = (
    "libcuda1",
    "nvidia-smi",
    "libnvidia-ml1",
    "libnvidia-ptxjitcompiler1",
    "nvidia-alternative",
)
COMPANION_PACKAGES = ("firmware-nvidia-gsp", "nvidia-modprobe", "nvidia-persistenced")
ENGINE_PACKAGES = ("containerd", "runc", "containernetworking-plugins")
# What a CRI-O from elsewhere needs in addition: a container monitor, and a tool to load image archives.
CRIO_PACKAGES = ("conmon", "skopeo")
# Only installed by their own tests; Docker's client is a separate package from Debian 13 on.
DOCKER_PACKAGES = ("docker.io", "docker-cli")
PODMAN_PACKAGES = ("podman",)
# What a node needs to build a module for its kernel: the layer of NodeSpec(builder=True).
BUILDER_PACKAGES = ("dkms", "gcc", "make", "linux-headers-amd64", "initramfs-tools", "zstd")
# The driver's kernel modules as sources for dkms, with what Debian installs beside them.
PROPRIETARY_PACKAGES = ("nvidia-kernel-dkms", "nvidia-kernel-support", *COMPANION_PACKAGES)
OPEN_PACKAGES = ("nvidia-open-kernel-dkms", "nvidia-open-kernel-support", *COMPANION_PACKAGES)
# The package managers of other distributions, and what builds packages for them: see lab.sources.
RPM_PACKAGES = ("rpm", "createrepo-c", "gpg", "gpg-agent", "dkms", "gcc", "make")
DNF_PACKAGES = (*RPM_PACKAGES, "dnf", "dnf-plugins-core")
ZYPPER_PACKAGES = (*RPM_PACKAGES, "zypper")  # dnf-plugins-core refuses to be beside it
# Unpacked by lab.images on the machine; never installed in a node.
IMAGE_PACKAGES = ("libc6", "busybox-static")


@dataclass(frozen=True)
class Request:
    """Packages that are fetched together, with every dependency that the base tree lacks.

    ``driver_version`` pins the whole closure of the NVIDIA sources to that upstream version. ``from_suite`` names a
    second suite whose NVIDIA packages may be used: Debian 13 installs Debian 12's driver.
    """

    packages: tuple[str, ...]
    driver_version: str = ""
    from_suite: str = ""


CONTENTS: dict[str, tuple[Request, ...]] = {
    "trixie": (
        Request(ENGINE_PACKAGES),
        Request(CRIO_PACKAGES),
        Request(DOCKER_PACKAGES),
        Request(PODMAN_PACKAGES),
        Request(IMAGE_PACKAGES),
        Request(BUILDER_PACKAGES),
        Request((*DRIVER_PACKAGES, *PROPRIETARY_PACKAGES), driver_version="550.163.01"),
        Request(OPEN_PACKAGES, driver_version="550.163.01"),
        Request((*DRIVER_PACKAGES, *PROPRIETARY_PACKAGES), driver_version="535.309.01", from_suite="bookworm"),
        Request(DRIVER_PACKAGES, driver_version="535.261.03", from_suite="bookworm"),
    ),
    "bookworm": (
        Request(ENGINE_PACKAGES),
        Request(CRIO_PACKAGES),
        Request(IMAGE_PACKAGES),
        Request(BUILDER_PACKAGES),
        Request(DNF_PACKAGES),
        Request(ZYPPER_PACKAGES),
        Request((*DRIVER_PACKAGES, *PROPRIETARY_PACKAGES), driver_version="535.309.01"),
        Request((*DRIVER_PACKAGES, *PROPRIETARY_PACKAGES), driver_version="535.261.03"),
    ),
}

# What the demo installs and builds: a folder of this alone is made where the suite's own is not there yet.
DEMO = tuple(
    request
    for request in CONTENTS["trixie"]
    if request.packages in {ENGINE_PACKAGES, IMAGE_PACKAGES, BUILDER_PACKAGES}
    or (request.driver_version == "550.163.01" and request.packages != OPEN_PACKAGES)
)
