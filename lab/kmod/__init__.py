"""Simulates a node's kernel modules: nodesim, the module files it loads, and the node files that they need.

nodesim simulates the kernel's module interface at the libc boundary (``src/nodesim.h`` says what that covers); all
programs above it are real. NVML is not simulated here: that is ``lab.nvml``.
"""

from lab.kmod.build import MODULES, build_modules, build_nodesim, module_argv, source_key
from lab.kmod.install import SIMULATED_NVML, KmodFiles, install_driver_module

__all__ = [
    "MODULES",
    "SIMULATED_NVML",
    "KmodFiles",
    "build_modules",
    "build_nodesim",
    "install_driver_module",
    "module_argv",
    "source_key",
]
