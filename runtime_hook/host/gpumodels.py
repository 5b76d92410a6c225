"""Looks up brand, compute capability and CUDA version in tables, without NVML. Pure.

They are estimates of what NVML says; the node daemon's facts (``nvmlfacts``) replace them where it runs. What a table
does not know is "", which a requirement counts as fulfilled, as NVIDIA's own tools do.
"""

from __future__ import annotations

# PCI device ids of vendor 10de, first and last of each block, and the compute capability of its chips. Sources: the
# PCI ID repository for the blocks up to Ada and Hopper, NVIDIA's gpu-admin-tools (gpu/devid_chips.py) for Blackwell;
# NVIDIA's list of CUDA GPUs for the capabilities.
_COMPUTE_CAPABILITIES = (
    (0x1340, 0x13BF, "5.0"),  # GM108, GM107
    (0x13C0, 0x143F, "5.2"),  # GM204, GM206
    (0x15F0, 0x15FF, "6.0"),  # GP100
    (0x1600, 0x163F, "5.2"),  # GM204, mobile
    (0x1740, 0x177F, "5.0"),  # GM108
    (0x17C0, 0x17FF, "5.2"),  # GM200
    (0x1B00, 0x1D7F, "6.1"),  # GP102, GP104, GP106, GP107, GP108
    (0x1D80, 0x1DFF, "7.0"),  # GV100
    (0x1E00, 0x1FFF, "7.5"),  # TU102, TU104, TU106, TU117
    (0x2080, 0x20FF, "8.0"),  # GA100
    (0x2180, 0x21FF, "7.5"),  # TU116
    (0x2200, 0x227F, "8.6"),  # GA102
    (0x2300, 0x237F, "9.0"),  # GH100
    (0x2400, 0x25FF, "8.6"),  # GA103, GA104, GA106, GA107
    (0x2680, 0x28FF, "8.9"),  # AD102, AD103, AD104, AD106, AD107
    (0x2900, 0x29FF, "10.0"),  # GB100, GB102
    (0x2B80, 0x2BFF, "12.0"),  # GB202
    (0x2C00, 0x2C7F, "12.0"),  # GB203
    (0x2D00, 0x2DFF, "12.0"),  # GB206, GB207
    (0x2E00, 0x2E7F, "12.1"),  # GB10
    (0x2F00, 0x2F7F, "12.0"),  # GB205
    (0x3180, 0x31FF, "10.3"),  # GB110
)

# Driver branch → CUDA version that its libcuda offers. Source: NVIDIA's CUDA release notes, table "CUDA Toolkit and
# Corresponding Driver Versions".
_CUDA_VERSIONS = {
    "384": "9.0", "387": "9.1", "390": "9.1", "396": "9.2", "410": "10.0", "418": "10.1", "430": "10.1", "435": "10.1",
    "440": "10.2", "450": "11.0", "455": "11.1", "460": "11.2", "465": "11.3", "470": "11.4", "495": "11.5",
    "510": "11.6", "515": "11.7", "520": "11.8", "525": "12.0", "530": "12.1", "535": "12.2", "545": "12.3",
    "550": "12.4", "555": "12.5", "560": "12.6", "565": "12.7", "570": "12.8", "575": "12.9", "580": "13.0",
    "590": "13.1", "595": "13.2",
}  # fmt: skip

# Words in a model's name → NVML's brand, the first that fits: (all of these words, brand). NVIDIA's own images ask for
# these brands (``NVIDIA_REQUIRE_CUDA``), in any case of letters.
_BRANDS = (
    (("geforce", "rtx"), "GeForceRTX"),
    (("geforce",), "GeForce"),
    (("quadro", "rtx"), "QuadroRTX"),
    (("quadro",), "Quadro"),
    (("titan", "rtx"), "TitanRTX"),
    (("titan",), "Titan"),
    (("tesla",), "Tesla"),
    (("nvs",), "NVS"),
    (("grid",), "GRID"),
    (("rtx",), "NvidiaRTX"),
    (("nvidia",), "Nvidia"),
)


def compute_capability(device_id: int) -> str:
    """Return the compute capability of a PCI device id, such as "8.0"."""
    found = (capability for first, last, capability in _COMPUTE_CAPABILITIES if first <= device_id <= last)
    return next(found, "")


def cuda_version(driver_version: str) -> str:
    """Return the CUDA version of a driver, such as "12.4" of 550.163.01."""
    return _CUDA_VERSIONS.get(driver_version.partition(".")[0], "")


def brand(model: str) -> str:
    """Return the brand of a model, spelled as NVIDIA's libraries do."""
    words = model.lower().replace("-", " ").split()
    found = (name for wanted, name in _BRANDS if all(word in words for word in wanted))
    return next(found, "")
