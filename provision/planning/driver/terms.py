"""Names what the catalogue distinguishes besides what can be declared."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

# The first branch whose installers take the open kernel module where the GPUs leave the choice (NVIDIA's article
# "NVIDIA Transitions Fully Towards Open-Source GPU Kernel Modules", July 2024).
OPEN_BY_DEFAULT: Final = 560
# The first branch without proprietary modules (Driver Installation Guide, release 620, "Proprietary Kernel Modules
# Removed"), and the last one for GPUs that need them (590's supported-gpus.json: legacybranch 580.xx).
WITHOUT_PROPRIETARY: Final = 620
LAST_BEFORE_TURING: Final = 580
# The first branch with open modules (NVIDIA/open-gpu-kernel-modules, oldest tag 515.43.04).
FIRST_OPEN: Final = 515


class Manager(StrEnum):
    """A package manager."""

    APT = "apt"
    DNF = "dnf"
    ZYPPER = "zypper"


class Flavour(StrEnum):
    """Which kernel module a node has; none: grapnel does not install it."""

    OPEN = "open"
    PROPRIETARY = "proprietary"
    NONE = "none"


def branch_of(version: str) -> int:
    """Return the branch of an upstream version, or of a branch itself."""
    return int(version.partition(".")[0])
