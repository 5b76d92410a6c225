"""Which files of the NVIDIA driver belong to which driver capability: tables, nothing else.

Source: the library lists of NVIDIA's libnvidia-container (``src/nvc_info.c``). Real files are named
``<stem>.so.<driver version>``. Room for video, graphics, display and ngx, which come with a later release.
"""

LIBRARY_STEMS = {
    "utility": ("libnvidia-ml", "libnvidia-cfg", "libnvidia-nscq"),
    "compute": (
        "libcuda",
        "libcudadebugger",
        "libnvidia-opencl",
        "libnvidia-gpucomp",
        "libnvidia-ptxjitcompiler",
        "libnvidia-fatbinaryloader",
        "libnvidia-allocator",
        "libnvidia-compiler",
        "libnvidia-pkcs11",
        "libnvidia-pkcs11-openssl3",
        "libnvidia-nvvm",
        "libnvidia-tileiras",
    ),
}

BINARY_NAMES = {
    "utility": ("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nv-fabricmanager"),
    "compute": ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server"),
}

# Without these a capability is none: (SONAME, the distribution's usual package).
REQUIRED_SONAMES = {
    "utility": ("libnvidia-ml.so.1", "libnvidia-ml1"),
    "compute": ("libcuda.so.1", "libcuda1"),
}

# Programs look for these development links even where the host has none.
ALWAYS_LINKED_STEMS = ("libcuda",)

# Control nodes by kind: path, and the capability that fails without it ("" where none of ours does).
CONTROL_NODES = {
    "ctl": "/dev/nvidiactl",
    "uvm": "/dev/nvidia-uvm",
    "uvm-tools": "/dev/nvidia-uvm-tools",
    "modeset": "/dev/nvidia-modeset",
}
