"""Compiles the simulated libraries into the cache and prints their paths: `python3 -m lab.nvml`."""

from lab.nvml import build, build_cuda

print(build())
print(build_cuda())
