"""The labels of GPUs and of MIG devices: product, count, memory, architecture, and what a value may be. Pure.

From NVIDIA's internal/lm/resource.go and mig-strategy.go. On a node with several products NVIDIA's labels are those of
any one of them, another one after each run; here of the one with the most GPUs, of the first one among equals.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from plugin.devices.mig import MIXED, NONE, is_nameable, why_invalid
from plugin.devices.resources import UNDIVIDED
from plugin.devices.sharing import Strategy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plugin.devices.resources import Division
    from plugin.driver.snapshot import GpuFacts, MigFacts, MigSize

GPU = "nvidia.com/gpu"
_SHARED = (Strategy.TIME_SLICING, Strategy.MPS)
_MIB = 2**20

_FAMILIES = {
    1: "tesla",
    2: "fermi",
    3: "kepler",
    5: "maxwell",
    6: "pascal",
    9: "hopper",
    10: "blackwell",
    12: "blackwell",
    13: "rubin",
}
_TURING, _ADA = (7, 5), (8, 9)


def label_sharing(resource: str, name: str, division: Division) -> dict[str, str]:
    """Return the labels that say how a resource's devices are shared.

    As in NVIDIA's internal/lm/resource.go: a product is -SHARED where its resource keeps its name.
    """
    is_marked = division.strategy in _SHARED and not division.is_renamed
    return {
        f"{resource}.product": join(name, "SHARED") if is_marked else name,
        f"{resource}.replicas": str(division.units),
        f"{resource}.sharing-strategy": division.strategy.value,
    }


def label_gpus(gpus: Sequence[GpuFacts], divisions: Mapping[str, Division]) -> dict[str, str]:
    """Return the labels of the product that stands for the node; GPUs in MIG mode count as whole ones.

    Where every GPU of it is in MIG mode `replicas` is 0, as with NVIDIA's: such GPUs are not shared.
    """
    product = products(gpus)[0]
    whole = [gpu for gpu in gpus if gpu.model == product and not gpu.is_cut]
    count = sum(gpu.model == product for gpu in gpus)
    gpu = whole[0] if whole else next(gpu for gpu in gpus if gpu.model == product)
    labels = {
        **label_sharing(GPU, join(product), divisions.get(gpu.uuid, UNDIVIDED)),
        f"{GPU}.count": str(count),
    }
    if not whole:
        labels[f"{GPU}.replicas"] = "0"
    if gpu.memory_bytes is not None and gpu.memory_bytes >= _MIB:
        labels[f"{GPU}.memory"] = str(gpu.memory_bytes // _MIB)
    return labels | _architecture(gpu.compute_capability)


def products(gpus: Sequence[GpuFacts]) -> list[str]:
    """Return the products, the one that stands for the node first: one with whole GPUs, then the commonest."""
    counts = Counter(gpu.model for gpu in gpus)
    whole = {gpu.model for gpu in gpus if not gpu.is_cut}
    return sorted(counts, key=lambda model: (model not in whole, -counts[model]))


def family(major: int, minor: int) -> str:
    """Return the name of an architecture by its CUDA compute capability."""
    if major == _TURING[0]:
        return "turing" if minor >= _TURING[1] else "volta"
    if major == _ADA[0]:
        return "ada-lovelace" if minor >= _ADA[1] else "ampere"
    return _FAMILIES.get(major, "undefined")


def _architecture(compute_capability: str) -> dict[str, str]:
    major, _, minor = compute_capability.partition(".")
    if not (major.isdecimal() and minor.isdecimal()):
        return {}
    return {
        f"{GPU}.family": family(int(major), int(minor)),
        f"{GPU}.compute.major": str(int(major)),
        f"{GPU}.compute.minor": str(int(minor)),
    }


MAX_LENGTH = 63
_DROPPED = re.compile(r"[^A-Za-z0-9_. -]")
_ENDS = "-_."


def fit(text: str, room: int = MAX_LENGTH) -> str:
    """Return what of a text can be a value: spaces become dashes, what is not allowed goes."""
    words = _DROPPED.sub("", text).split()
    return "-".join(words)[:room].strip(_ENDS)


def join(name: str, *parts: str) -> str:
    """Return a name and what is added to it, dashes between; a name that is too long gives way to the rest."""
    added = "-".join(filter(None, map(fit, parts)))
    if not added:
        return fit(name)
    kept = fit(name, max(MAX_LENGTH - len(added) - 1, 0))
    return fit(f"{kept}-{added}")


# The labels of MIG devices under the strategies `single` and `mixed`. From NVIDIA's internal/lm/mig-strategy.go:
# `single` speaks of MIG devices under the names of whole GPUs, and of none where the layout is not one profile on
# every GPU; `mixed` has names for each profile.


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
