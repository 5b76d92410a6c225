"""What Node Feature Discovery can be told besides labels: features of the driver and of each GPU, for its rules. Pure.

Labels speak of the product that stands for a node; rules (NodeFeatureRule) can ask whether any GPU is so. Names follow
Node Feature Discovery's custom "<domain>.<feature>", whole numbers are such that `Gt` and `Lt` compare them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from plugin.publication.labels.gpus import family
from plugin.publication.labels.node_labels import ecc_word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugin.devices.inventory import Inventory
    from plugin.driver.snapshot import GpuFacts
    from plugin.publication.labels.host import HostFacts

DRIVER, GPU = "grapnel.driver", "grapnel.gpu"
_MIB = 2**20


class Features(NamedTuple):
    """Attributes of the node by feature, and those of each instance of a feature."""

    attributes: Mapping[str, Mapping[str, str]]
    instances: Mapping[str, tuple[Mapping[str, str], ...]]


def make_features(inventory: Inventory, host: HostFacts) -> Features:
    """Return the features of a node; what is not known is left out."""
    return Features({DRIVER: _driver(inventory, host)}, {GPU: tuple(_gpu(each.gpu) for each in inventory.devices)})


def _driver(inventory: Inventory, host: HostFacts) -> dict[str, str]:
    cuda_major, _, cuda_minor = inventory.cuda_version.partition(".")
    return _known(
        {
            "version": inventory.driver_version,
            "major": inventory.driver_version.partition(".")[0],
            "cuda.major": cuda_major,
            "cuda.minor": cuda_minor,
            "kernel-module": host.kernel_module,
        }
    )


def _gpu(gpu: GpuFacts) -> dict[str, str]:
    major, _, minor = gpu.compute_capability.partition(".")
    has_number = major.isdecimal() and minor.isdecimal()
    return _known(
        {
            "uuid": gpu.uuid,
            "product": gpu.model,
            "memory": "" if gpu.memory_bytes is None else str(gpu.memory_bytes // _MIB),
            "family": family(int(major), int(minor)) if has_number else "",
            "compute.major": major if has_number else "",
            "compute.minor": minor if has_number else "",
            "ecc": ecc_word(gpu),
            "mig": "" if gpu.is_cut is None else "enabled" if gpu.is_cut else "disabled",
        }
    )


def _known(values: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}
