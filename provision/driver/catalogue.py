"""Maps the parts of the driver to binary packages, for each supported distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from provision.node_plan import Problem
from provision.spec.model import Capability, KernelModule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from provision.fleet.facts import NodeIdentity

ARCHITECTURES = ("x86_64",)

# Debian builds the driver from one source; the open kernel modules are a source of their own, with the same version.
_DEBIAN_SOURCES = ("nvidia-graphics-drivers", "nvidia-open-gpu-kernel-modules")
# NVIDIA's capability classes (container toolkit, "driver capabilities") in Debian's packages. What these packages need
# of the same source follows by itself; recommended packages (the kernel module among them) do not.
_DEBIAN_PACKAGES: Mapping[Capability, tuple[str, ...]] = {
    Capability.COMPUTE: ("libcuda1",),
    Capability.UTILITY: ("libnvidia-ml1", "nvidia-smi"),
    Capability.VIDEO: ("libnvcuvid1", "libnvidia-encode1", "libnvidia-opticalflow1"),
    Capability.GRAPHICS: ("nvidia-driver-libs", "nvidia-vulkan-icd", "libgles-nvidia2"),
    Capability.DISPLAY: ("nvidia-driver-libs",),
    Capability.NGX: ("libnvidia-ngx1",),
}


@dataclass(frozen=True)
class Distribution:
    """A version of a distribution: how it names the driver's parts, and from which sources it builds them."""

    id: str
    codename: str
    version_id: str
    sources: tuple[str, ...]
    packages: Mapping[Capability, tuple[str, ...]]

    def is_other_driver_source(self, source: str) -> bool:
        """Tell whether a source is a driver that does not go together with this distribution's main one."""
        return source.startswith("nvidia-graphics-drivers") and source not in self.sources


DISTRIBUTIONS = (
    Distribution("debian", "bookworm", "12", _DEBIAN_SOURCES, _DEBIAN_PACKAGES),
    Distribution("debian", "trixie", "13", _DEBIAN_SOURCES, _DEBIAN_PACKAGES),
)


def find_distribution(node: NodeIdentity) -> Distribution | Problem:
    """Return the distribution of a node, or why it is not supported."""
    if node.architecture not in ARCHITECTURES:
        return Problem(
            code="unsupported-os",
            message=f"{node.hostname} has architecture {node.architecture}, which is not supported yet",
            hint=f"supported architectures: {', '.join(ARCHITECTURES)}",
        )
    for distribution in DISTRIBUTIONS:
        if (distribution.id, distribution.version_id) == (node.os.id, node.os.version_id):
            return distribution
    supported = ", ".join(f"{each.id} {each.version_id} ({each.codename})" for each in DISTRIBUTIONS)
    return Problem(
        code="unsupported-os",
        message=f"{node.hostname} runs {node.os.id} {node.os.version_id or 'without a version'}, "
        "which is not supported yet",
        hint=f"supported distributions: {supported}",
    )


def root_packages(
    distribution: Distribution, kernel_module: KernelModule, capabilities: Sequence[Capability]
) -> tuple[str, ...] | Problem:
    """Return the packages to ask for, sorted, without those that they bring with them."""
    if kernel_module is not KernelModule.NONE:
        return Problem(
            code="unsupported-kernel-module",
            message=f"driver.kernelModule is {kernel_module.value}, and installing a module is not supported yet",
            hint="declare kernelModule: none and install the module by other means; user space is managed all the same",
        )
    missing = [each.value for each in capabilities if each not in distribution.packages]
    if missing:
        return Problem(
            code="unsupported-capability",
            message=f"driver.capabilities has {', '.join(missing)}, which {distribution.id} {distribution.version_id} "
            "has no packages for",
            hint=f"supported capabilities: {', '.join(each.value for each in distribution.packages)}",
        )
    return tuple(sorted({name for each in capabilities for name in distribution.packages[each]}))
