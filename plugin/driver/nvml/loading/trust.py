"""How far NVML's answers are trusted: what a question may end with, and which answers cannot be true.

A driver that breaks answers nonsense before it answers nothing: a text that is not UTF-8, a GPU too many, one UUID for
two GPUs. Whatever it says costs the GPU that it is said of, never the daemon and never another GPU.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, TypeVar

import pynvml

from plugin.driver.snapshot import GpuFacts, LostGpu
from plugin.driver.uuid import is_gpu_uuid

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_GPUS = 256
MAX_MIG_DEVICES = 64
_MAX_VERSION = 63

# What a call of pynvml raises: an error of NVML's, or Python's own where the answer is not of the kind that it expects.
FAULTS = (pynvml.NVMLError, ValueError, TypeError, AttributeError, LookupError, OSError, ctypes.ArgumentError)


def reason(error: BaseException) -> str:
    """Return what went wrong, for a sentence."""
    if isinstance(error, UnicodeDecodeError):
        return "the answer is not text"
    words = str(error).lower() if isinstance(error, pynvml.NVMLError) else str(error)
    return words.rstrip(".") or type(error).__name__


def gpu_count() -> int:
    """Return how many GPUs NVML counts; raises one of FAULTS, also for a number that no machine has."""
    count = int(pynvml.nvmlDeviceGetCount())
    if not 0 <= count <= MAX_GPUS:
        raise ValueError(f"it counts {count} gpus")
    return count


def gpu_uuid(handle: Any) -> str:
    """Return the UUID of a GPU; raises one of FAULTS, also for one that no GPU has: it names files and devices."""
    uuid = str(pynvml.nvmlDeviceGetUUID(handle))
    if not is_gpu_uuid(uuid):
        raise ValueError(f"{uuid[:64]!a} is not the uuid of a gpu")
    return uuid


def driver_version() -> str:
    """Return the version of the driver; raises one of FAULTS, also for a text that is not a version."""
    version = str(pynvml.nvmlSystemGetDriverVersion())
    if not 0 < len(version) <= _MAX_VERSION or not (version.isascii() and version.isprintable()):
        raise ValueError(f"{version[:_MAX_VERSION]!a} is not the version of a driver")
    return version


def without_doubles(answers: list[GpuFacts | LostGpu]) -> list[GpuFacts | LostGpu]:
    """Return the answers, a GPU that claims to be an earlier one as lost.

    With the same UUID the two cannot be told apart, with the same minor number two pods would get one GPU.
    """
    uuids: dict[str, int] = {}
    minors: dict[int, int] = {}
    kept: list[GpuFacts | LostGpu] = []
    for answer in answers:
        if isinstance(answer, GpuFacts):
            twin = uuids.setdefault(answer.uuid, answer.index)
            what, uuid = "uuid", None
            if twin == answer.index:
                twin = minors.setdefault(answer.minor, answer.index)
                what, uuid = "minor number", answer.uuid
            if twin != answer.index:
                kept.append(LostGpu(answer.index, uuid, f"it has the {what} of gpu {twin}"))
                continue
        kept.append(answer)
    return kept


_Answer = TypeVar("_Answer")


def ask(question: Callable[[], _Answer]) -> _Answer | None:
    """Return the answer, None where NVML has none."""
    try:
        return question()
    except FAULTS:
        return None
