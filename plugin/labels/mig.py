"""The labels of MIG devices under the strategies `single` and `mixed`. Pure.

From NVIDIA's internal/lm/mig-strategy.go: `single` speaks of MIG devices under the names of whole GPUs, and of none
where the layout is not one profile on every GPU; `mixed` has names for each profile.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from plugin.labels.gpus import GPU, REPLICAS, SHARING
from plugin.labels.values import join

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugin.driver.snapshot import GpuFacts, MigFacts, MigSize

NONE, SINGLE, MIXED = "none", "single", "mixed"
_PROFILE = re.compile(r"[0-9][0-9a-z.+-]{0,30}[0-9a-z]")


def label_mig(gpus: Sequence[GpuFacts], strategy: str) -> dict[str, str]:
    """Return what is to be put over the labels of whole GPUs."""
    if strategy == NONE:
        return {}
    labels = {"nvidia.com/mig.strategy": strategy}
    cut = [gpu for gpu in gpus if gpu.is_cut]
    if strategy == MIXED:
        for profile, devices in _by_profile(cut).items():
            labels |= _label(f"nvidia.com/mig-{profile}", profile, devices)
    elif cut:
        labels |= _single(gpus, cut)
    return labels


def why_invalid(gpus: Sequence[GpuFacts]) -> str:
    """Return why a layout does not fit `single`, "" where it does."""
    cut = [gpu for gpu in gpus if gpu.is_cut]
    if not cut:
        return ""
    if any(not gpu.mig for gpu in cut):
        return "a GPU in MIG mode has no MIG device"
    if len(cut) < len(gpus):
        return "some GPUs are in MIG mode and others are not"
    profiles = _by_profile(cut)
    named = sum(len(devices) for devices in profiles.values())
    if len(profiles) != 1 or named != sum(len(gpu.mig) for gpu in cut):
        return "the MIG devices are not all of one profile"
    return ""


def _single(gpus: Sequence[GpuFacts], cut: Sequence[GpuFacts]) -> dict[str, str]:
    if why_invalid(gpus):
        return {
            f"{GPU}.product": join(cut[0].model, "MIG", "INVALID"),
            f"{GPU}.count": "0",
            f"{GPU}.replicas": "0",
            f"{GPU}.sharing-strategy": "",
            f"{GPU}.memory": "0",
        }
    ((profile, devices),) = _by_profile(cut).items()
    return _label(GPU, profile, devices)


def _by_profile(cut: Sequence[GpuFacts]) -> dict[str, list[tuple[GpuFacts, MigFacts]]]:
    """Return the MIG devices with their GPUs by profile, as it can stand in a name; those without one are left out."""
    found: dict[str, list[tuple[GpuFacts, MigFacts]]] = {}
    for gpu in cut:
        for device in gpu.mig:
            if _PROFILE.fullmatch(device.profile):
                found.setdefault(device.profile.replace("+", "."), []).append((gpu, device))
    return found


def _label(resource: str, profile: str, devices: Sequence[tuple[GpuFacts, MigFacts]]) -> dict[str, str]:
    gpu, device = devices[0]
    labels = {
        f"{resource}.product": join(gpu.model, "MIG", profile),
        f"{resource}.count": str(len(devices)),
        f"{resource}.replicas": REPLICAS,
        f"{resource}.sharing-strategy": SHARING,
    }
    return labels if device.size is None else labels | _size(resource, device.size)


def _size(resource: str, size: MigSize) -> dict[str, str]:
    numbers = {
        "memory": size.memory_mib,
        "multiprocessors": size.multiprocessors,
        "slices.gi": size.gpu_slices,
        "slices.ci": size.compute_slices,
        "engines.copy": size.copy_engines,
        "engines.decoder": size.decoders,
        "engines.encoder": size.encoders,
        "engines.jpeg": size.jpeg_engines,
        "engines.ofa": size.ofa_engines,
    }
    return {f"{resource}.{name}": str(number) for name, number in numbers.items()}
