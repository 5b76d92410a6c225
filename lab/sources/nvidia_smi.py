#!/usr/bin/python3
"""Stand-in for nvidia-smi @VERSION@: asks the simulated NVML, as the real one does, and ends with its statuses."""

import ctypes
import sys

REASONS = {
    9: "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
    18: "Failed to initialize NVML: Driver/library version mismatch",
}


def main() -> int:
    """Print the GPUs; return NVML's error."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        print("Failed to initialize NVML: library not found")
        return 12
    status = nvml.nvmlInit_v2()
    if status:
        print(REASONS.get(status, f"Failed to initialize NVML: error {status}"))
        return int(status)
    if "-L" not in sys.argv[1:]:
        print("NVIDIA-SMI @VERSION@")
    count = ctypes.c_uint()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    for index in range(count.value):
        device, name, uuid = ctypes.c_void_p(), ctypes.create_string_buffer(96), ctypes.create_string_buffer(96)
        nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
        nvml.nvmlDeviceGetName(device, name, len(name))
        nvml.nvmlDeviceGetUUID(device, uuid, len(uuid))
        print(f"GPU {index}: {name.value.decode()} (UUID: {uuid.value.decode()})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
