"""Says which packages the planner decides about: those of the driver, of its companions, and of the engines.

By name: NVIDIA's repositories build them from many small sources whose names are published nowhere. A driver that does
not belong to the node's distribution is among them: it is what a plan has to refuse.
"""

from __future__ import annotations

import re

from ansible_collections.grapnel.node.plugins.module_utils.engines.table import ENGINES

ENGINE_PACKAGES = tuple(sorted(name for each in ENGINES.values() for name in each.packages))
# What the planner has installed with an engine whose package does not ask for it.
WITH_ENGINES = ("container-selinux", "containerd-ctr")
SOURCE_PATTERN = "^nvidia-graphics-drivers"
# In extended regular expressions, which apt takes too.
NAME_PATTERN = (
    "nvidia|^(cuda-drivers|libcuda$|libcuda1$|libcudadebugger1$|libnvcuvid1$|libnvoptix1$|libnvsdm|libxnvctrl|nvlink5"
    "|nvlsm|gdrcopy|gdrdrv|nv-prefer-)"
)
# Modules that are built for one kernel, of sources that are not the driver's own; all else of Linux's is a kernel.
PREBUILT_PATTERN = "^linux-(modules|objects|signatures)-nvidia-"
# What is called after the company and is no part of a driver.
OTHERS_PATTERN = (
    "^(linux-|python3?-|golang-|(lib)?nvidia-(container|docker|cuda-|cudnn|texture|nsight|gds|openjdk|visual-profiler"
    "|profiler))"
)
_SOURCE = re.compile(SOURCE_PATTERN)
_NAME = re.compile(NAME_PATTERN)
_PREBUILT = re.compile(PREBUILT_PATTERN)
_OTHERS = re.compile(OTHERS_PATTERN)


def is_of_interest(name: str, source: str) -> bool:
    """Tell whether the planner decides about a package."""
    if name in (*ENGINE_PACKAGES, *WITH_ENGINES) or _PREBUILT.match(name):
        return True
    return bool((_SOURCE.match(source) or _NAME.search(name)) and not _OTHERS.match(name))
