"""What NVML knows of a GPU besides its identity: brand, compute capability, MIG devices.

It is for the hook, which never asks NVML (contract `docs/contracts/nvml-facts`), and for the node's labels. So a
question that fails is no loss of the GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import pynvml

from plugin.driver.nvml.loading.trust import FAULTS, MAX_MIG_DEVICES
from plugin.driver.snapshot import MigFacts, MigSize

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
_PROFILE = " MIG "  # a MIG device is called "NVIDIA A100-SXM4-40GB MIG 1g.5gb"


def _ask(question: Callable[[], _Answer], otherwise: _Answer) -> _Answer:
    try:
        return question()
    except FAULTS:
        return otherwise


def brand(handle: Any) -> str:
    """Return the brand of a GPU."""
    return _BRANDS.get(_ask(lambda: int(pynvml.nvmlDeviceGetBrand(handle)), -1), "")


def compute_capability(handle: Any) -> str:
    """Return it as `major.minor`."""
    major, minor = _ask(lambda: pynvml.nvmlDeviceGetCudaComputeCapability(handle), (0, 0))
    return f"{major}.{minor}" if major else ""


def cuda_version() -> str:
    """Return the CUDA version of the driver as `major.minor`, "" where NVML does not know it."""
    return spell_cuda_version(_ask(lambda: int(pynvml.nvmlSystemGetCudaDriverVersion_v2()), 0))


def spell_cuda_version(number: int) -> str:
    """Return `12.4` of 12040, as NVML and CUDA number it; "" of 0."""
    return f"{number // 1000}.{number % 1000 // 10}" if number > 0 else ""


def is_cut(handle: Any) -> bool | None:
    """Return whether a GPU is in MIG mode, None where it has no such mode or does not say."""
    return _ask(lambda: bool(pynvml.nvmlDeviceGetMigMode(handle)[0]), None)


def has_ecc(handle: Any) -> bool | None:
    """Return whether ECC is on, None where a GPU has no such mode or does not say. Another mode waits for a reset."""
    return _ask(lambda: bool(pynvml.nvmlDeviceGetEccMode(handle)[0]), None)


def mig_devices(handle: Any) -> tuple[MigFacts, ...]:
    """Return the MIG devices of a GPU in MIG mode."""
    count = _ask(lambda: int(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)), 0)
    found = (_ask(lambda index=index: _mig_device(handle, index), None) for index in range(min(count, MAX_MIG_DEVICES)))  # type: ignore[misc] # bound at once
    return tuple(device for device in found if device is not None)


def _mig_device(handle: Any, index: int) -> MigFacts | None:
    device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
    return MigFacts(
        uuid=str(pynvml.nvmlDeviceGetUUID(device)),
        index=index,
        gpu_instance=int(pynvml.nvmlDeviceGetGpuInstanceId(device)),
        compute_instance=int(pynvml.nvmlDeviceGetComputeInstanceId(device)),
        profile=_ask(lambda: str(pynvml.nvmlDeviceGetName(device)), "").partition(_PROFILE)[2],
        size=_ask(lambda: _mig_size(device), None),
    )


def _mig_size(device: Any) -> MigSize:
    found = pynvml.nvmlDeviceGetAttributes_v2(device)
    return MigSize(
        memory_mib=int(found.memorySizeMB),
        multiprocessors=int(found.multiprocessorCount),
        gpu_slices=int(found.gpuInstanceSliceCount),
        compute_slices=int(found.computeInstanceSliceCount),
        copy_engines=int(found.sharedCopyEngineCount),
        decoders=int(found.sharedDecoderCount),
        encoders=int(found.sharedEncoderCount),
        jpeg_engines=int(found.sharedJpegCount),
        ofa_engines=int(found.sharedOfaCount),
    )
