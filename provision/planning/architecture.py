"""Names a machine's architecture as each of those does who have names of their own for it. A table; constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Architecture:
    """One architecture. ``name`` is the kernel's (``uname -m``), which rpm, DKMS, Docker and runfiles use, too.

    ``debian`` is dpkg's, and Go's, which images have; ``nvidia`` the folder in NVIDIA's repositories, whose word for
    servers with Arm is "sbsa" (Server Base System Architecture); ``multiarch`` that of libraries on Debian and Ubuntu.
    """

    name: str
    debian: str
    nvidia: str
    multiarch: str


X86_64: Final = Architecture("x86_64", "amd64", "x86_64", "x86_64-linux-gnu")
AARCH64: Final = Architecture("aarch64", "arm64", "sbsa", "aarch64-linux-gnu")
ARCHITECTURES: Final = {each.name: each for each in (X86_64, AARCH64)}
