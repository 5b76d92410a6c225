"""What NVML knows of a GPU besides its identity: brand, compute capability, MIG devices.

The daemon itself needs none of it: it is for the hook, which never asks NVML (contract `docs/contracts/nvml-facts`).
So a question that fails is no loss of the GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import pynvml

from plugin.snapshot import MigFacts

if TYPE_CHECKING:
    from collections.abc import Callable

_Answer = TypeVar("_Answer")

# NVML_BRAND_*, spelled as NVIDIA's own libraries do; requirements of images compare them in any case of letters.
_BRANDS = {
    0: "Unknown",
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "GRID",
    5: "GeForce",
    6: "Titan",
    7: "NvidiaVApps",
    8: "NvidiaVPC",
    9: "NvidiaVCS",
    10: "NvidiaVWS",
    11: "NvidiaCloudGaming",
    12: "QuadroRTX",
    13: "NvidiaRTX",
    14: "Nvidia",
    15: "GeForceRTX",
    16: "TitanRTX",
}


def _ask(question: Callable[[], _Answer], otherwise: _Answer) -> _Answer:
    try:
        return question()
    except pynvml.NVMLError:
        return otherwise


def brand(handle: Any) -> str:  # noqa: ANN401 - NVML's handles have no type
    """Return the brand of a GPU."""
    return _BRANDS.get(_ask(lambda: int(pynvml.nvmlDeviceGetBrand(handle)), -1), "")


def compute_capability(handle: Any) -> str:  # noqa: ANN401 - NVML's handles have no type
    """Return it as `major.minor`."""
    major, minor = _ask(lambda: pynvml.nvmlDeviceGetCudaComputeCapability(handle), (0, 0))
    return f"{major}.{minor}" if major else ""


def cuda_version() -> str:
    """Return the CUDA version of the driver as `major.minor`; NVML says 12040 for 12.4."""
    number = _ask(lambda: int(pynvml.nvmlSystemGetCudaDriverVersion_v2()), 0)
    return f"{number // 1000}.{number % 1000 // 10}" if number else ""


def mig_devices(handle: Any) -> tuple[MigFacts, ...]:  # noqa: ANN401 - NVML's handles have no type
    """Return the MIG devices of a GPU; none where it is not in MIG mode."""
    is_enabled = _ask(lambda: bool(pynvml.nvmlDeviceGetMigMode(handle)[0]), otherwise=False)
    count = _ask(lambda: int(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)), 0) if is_enabled else 0
    found = (_ask(lambda index=index: _mig_device(handle, index), None) for index in range(count))  # type: ignore[misc] # bound at once
    return tuple(device for device in found if device is not None)


def _mig_device(handle: Any, index: int) -> MigFacts | None:  # noqa: ANN401 - NVML's handles have no type
    device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
    return MigFacts(
        uuid=str(pynvml.nvmlDeviceGetUUID(device)),
        index=index,
        gpu_instance=int(pynvml.nvmlDeviceGetGpuInstanceId(device)),
        compute_instance=int(pynvml.nvmlDeviceGetComputeInstanceId(device)),
    )
