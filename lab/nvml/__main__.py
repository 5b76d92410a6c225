"""Compile the simulated library into the cache and print its path: `python3 -m lab.nvml`."""

from lab.nvml import build

print(build())
