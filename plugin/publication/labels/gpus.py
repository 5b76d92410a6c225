"""The labels of whole GPUs: product, count, memory, architecture. Pure.

From NVIDIA's internal/lm/resource.go and mig-strategy.go. On a node with several products NVIDIA's labels are those of
any one of them, another one after each run; here of the one with the most GPUs, of the first one among equals.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from plugin.devices.resources import UNDIVIDED
from plugin.devices.sharing import Strategy
from plugin.publication.labels.values import join

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plugin.devices.resources import Division
    from plugin.driver.snapshot import GpuFacts

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
