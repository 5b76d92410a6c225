"""Says which packages the planner decides about: those of the driver, of its companions, and of the engines.

A driver that does not belong to the node's distribution is among them: it is what a plan has to refuse.
"""

from __future__ import annotations

import re

ENGINE_PACKAGES = (
    "containerd",
    "containerd.io",
    "containernetworking-plugins",
    "cri-o",
    "docker-ce",
    "docker.io",
    "podman",
    "runc",
)
# Source packages of the driver and its companions, in the words of Debian, Ubuntu, SUSE and NVIDIA's repositories.
SOURCE_PATTERNS = (
    "^nvidia-graphics-drivers",
    "^nvidia-open",
    "^nvidia-(driver|kmod|modprobe|persistenced|settings|xconfig|imex|libxnvctrl|fabric-?manager|peer-?mem|fs)",
    "^(kmod-nvidia|dkms-nvidia|libnvidia-(nscq|nvsdm)|libnvsdm|nvlsm|fabric-?manager|cuda-drivers|gdrcopy|xserver-xorg-video-nvidia)",
)
# Binary packages that carry modules which are built for one kernel, of sources that are not the driver's own.
PREBUILT_PATTERN = r"^linux-(modules|objects|signatures)-nvidia-"
_SOURCE = re.compile("|".join(SOURCE_PATTERNS))
_PREBUILT = re.compile(PREBUILT_PATTERN)
# With RPM a repository of one vendor builds many packages from one source, and the name of the binary says more.
_RPM_NAME = re.compile(
    r"^(nvidia-(?!container|docker|cuda-|cudnn|texture|nsight|gds)|(kmod|dkms)-nvidia|nv-prefer-|libnvidia-(?!container)"
    r"|libnvsdm|libcuda$|nvlsm|cuda-drivers|gdrcopy|gdrdrv|xserver-xorg-video-nvidia)"
)


def is_of_interest(name: str, source: str) -> bool:
    """Tell whether the planner decides about a package."""
    return name in ENGINE_PACKAGES or bool(_SOURCE.match(source) or _PREBUILT.match(name))


def is_rpm_of_interest(name: str, source: str) -> bool:
    """Tell the same of a package in RPM's world."""
    return is_of_interest(name, source) or bool(_RPM_NAME.match(name))
