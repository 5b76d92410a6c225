"""The driver as it answers: NVML, the kernel log, a CUDA probe, and how the GPUs are connected. Values only."""
