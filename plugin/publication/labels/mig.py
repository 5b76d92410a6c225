"""The labels of MIG devices under the strategies `single` and `mixed`. Pure.

From NVIDIA's internal/lm/mig-strategy.go: `single` speaks of MIG devices under the names of whole GPUs, and of none
where the layout is not one profile on every GPU; `mixed` has names for each profile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.devices.mig import MIXED, NONE, is_nameable, why_invalid
from plugin.devices.resources import UNDIVIDED
from plugin.publication.labels.gpus import GPU, label_sharing
from plugin.publication.labels.values import join

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plugin.devices.resources import Division
    from plugin.driver.snapshot import GpuFacts, MigFacts, MigSize


def label_mig(gpus: Sequence[GpuFacts], strategy: str, divisions: Mapping[str, Division]) -> dict[str, str]:
    """Return what is to be put over the labels of whole GPUs."""
    if strategy == NONE:
        return {}
    labels = {"nvidia.com/mig.strategy": strategy}
    cut = [gpu for gpu in gpus if gpu.is_cut]
    if strategy == MIXED:
        for profile, devices in _by_profile(cut).items():
            labels |= _label(f"nvidia.com/mig-{profile}", profile, devices, divisions)
    elif cut:
        labels |= _single(gpus, cut, divisions)
    return labels


def _single(gpus: Sequence[GpuFacts], cut: Sequence[GpuFacts], divisions: Mapping[str, Division]) -> dict[str, str]:
    if why_invalid(gpus):
        return {
            f"{GPU}.product": join(cut[0].model, "MIG", "INVALID"),
            f"{GPU}.count": "0",
            f"{GPU}.replicas": "0",
            f"{GPU}.sharing-strategy": "",
            f"{GPU}.memory": "0",
        }
    ((profile, devices),) = _by_profile(cut).items()
    return _label(GPU, profile, devices, divisions)


def _by_profile(cut: Sequence[GpuFacts]) -> dict[str, list[tuple[GpuFacts, MigFacts]]]:
    """Return the MIG devices with their GPUs by profile, as it can stand in a name; those without one are left out."""
    found: dict[str, list[tuple[GpuFacts, MigFacts]]] = {}
    for gpu in cut:
        for device in gpu.mig:
            if is_nameable(device.profile):
                found.setdefault(device.profile.replace("+", "."), []).append((gpu, device))
    return found


def _label(
    resource: str,
    profile: str,
    devices: Sequence[tuple[GpuFacts, MigFacts]],
    divisions: Mapping[str, Division],
) -> dict[str, str]:
    gpu, device = devices[0]
    labels = {
        **label_sharing(resource, join(gpu.model, "MIG", profile), divisions.get(device.uuid, UNDIVIDED)),
        f"{resource}.count": str(len(devices)),
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
