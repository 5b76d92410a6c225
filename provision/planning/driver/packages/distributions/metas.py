"""Names the metapackages of NVIDIA's repositories, which bring a whole driver with one flavour of the module.

They are what nvidia-driver-assistant recommends on every system (its table of instructions, version 0.23.48.01), the
same names for apt, dnf and zypper. grapnel names the packages themselves: a metapackage of NVIDIA's asks for "this
version or newer", and so ends with packages of the next branch (NVIDIA's forum, "cuda-drivers-580 package
580.105.08-1 improperly pulls in v590 components").
"""

from __future__ import annotations

from typing import Final

OPEN_METAS: Final = ("nvidia-open", "nvidia-open-[1-9]*")
PROPRIETARY_METAS: Final = ("cuda-drivers", "cuda-drivers-[1-9]*")
