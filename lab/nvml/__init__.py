"""Simulates NVML: a real `libnvidia-ml.so.1` that answers for a machine described by a few lines of text.

    library = install(folder, "550.163.01", models.machine("a100-40gb", 8))   # LD_LIBRARY_PATH=folder nvidia-smi -L
    state.update(library, lambda machine: machine.with_xid(gpu=0, xid=79))    # while processes use it

The C library is in `src/`, and in `cuda/` a `libcuda.so.1` that can allocate memory on the same machine. That
machine is described in `machine`, ready-made GPUs in `models`. Device nodes, /sys, /proc and packages of a node belong
to `lab.nodes`.
"""

from lab.nvml.library import CUDA_SONAME, SONAME, build, build_cuda, install, install_cuda

__all__ = ["CUDA_SONAME", "SONAME", "build", "build_cuda", "install", "install_cuda"]
