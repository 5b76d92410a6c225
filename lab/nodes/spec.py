"""Defines a node's specification and the GPUs derived from it: plain values, nothing touches the machine."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from lab.machine.errors import SiteError
from lab.nvml import models
from lab.nvml.machine import Check
from lab.sources.systems import BASE_SUITE, find_system
from lab.trees import find_suite

if TYPE_CHECKING:
    from lab.nvml.machine import Gpu, Machine

NAME = re.compile(r"[a-z][a-z0-9-]{0,11}")
MAX_GPUS = 16  # the range of the substitute device numbers


@dataclass(frozen=True)
class NodeSpec:
    """A node: its suite, its GPUs, and the kernel module version that it loads at boot ("" for none).

    ``packages`` from the suite's package folder are installed before its first boot. ``binds`` are files and folders
    of this machine, read-only: path here, path on the node.

    A ``builder`` has dkms, a compiler, and kernel and headers of the suite's newest kernel, which is the one it says it
    runs: it takes the driver's kernel modules from real packages, so ``driver_module`` is not for it.

    ``system`` is a name of ``lab.sources``: the node says it is that distribution and has its package manager, above
    the tree of ``BASE_SUITE``.

    ``last_model`` is the model of the last GPU, where it is another one than that of the others.
    """

    name: str
    suite: str = "trixie"
    gpus: int = 4
    driver_module: str = ""
    model: str = "a100-40gb"
    packages: tuple[str, ...] = ()
    binds: tuple[tuple[str, str], ...] = ()
    builder: bool = False
    system: str = ""
    last_model: str = ""

    def __post_init__(self) -> None:
        check_name("node", self.name)
        find_suite(self.suite)
        if not 0 <= self.gpus <= MAX_GPUS:
            raise SiteError(f"node {self.name}: {self.gpus} GPUs", hint=f"0 to {MAX_GPUS} can be simulated")
        for model in filter(None, (self.model, self.last_model)):
            if model not in models.MODELS:
                raise SiteError(f"node {self.name}: no model {model!r}", hint=f"models: {', '.join(models.MODELS)}")
        if self.last_model and not self.gpus:
            raise SiteError(f"node {self.name}: last_model without a GPU", hint="say how many GPUs there are")
        if self.builder and self.driver_module:
            hint = "install nvidia-kernel-dkms on it, or put lab.modules.archive() in place"
            raise SiteError(f"node {self.name}: a builder has no simulated module files", hint=hint)
        if self.system:
            self._check_system()

    def _check_system(self) -> None:
        find_system(self.system)
        if self.builder or self.suite != BASE_SUITE:
            hint = f"leave out builder, and say suite={BASE_SUITE!r}: {self.system} is made of it"
            raise SiteError(f"node {self.name}: {self.system} decides what is on it", hint=hint)

    @property
    def kernel_release(self) -> str:
        """The kernel that the node says it runs, unless it is a builder: that is in its package folder."""
        return find_system(self.system).kernel_release if self.system else find_suite(self.suite).kernel_release

    def machine(self, site: str) -> Machine:
        """Return the machine that the simulated NVML reports; the same site, node and index always have the same UUID.

        The library checks the node it runs on: whether the driver is loaded and devices may be opened.
        """
        built = models.machine(self.model, self.gpus, seed=f"{site}/{self.name}", last=self.last_model)
        return replace(built, module=Check.CHECK, devices=Check.CHECK)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that is kept in the node's folder."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> NodeSpec:
        """Read what ``to_json`` made and JSON kept: lists are tuples again."""
        packages = tuple(values.get("packages", ()))
        binds = tuple((source, place) for source, place in values.get("binds", ()))
        return cls(**{**values, "packages": packages, "binds": binds})


def check_name(kind: str, name: str) -> None:
    """Names become parts of interface names, control groups and host names."""
    if not NAME.fullmatch(name):
        hint = "a lower-case letter, then up to 11 letters, digits or hyphens"
        raise SiteError(f"invalid {kind} name {name!r}", hint=hint)


def gpu_line(gpu: Gpu) -> str:
    """Return ``pci_address minor uuid model…``: a line of ``/etc/gpusim/gpus``, which the simulated module reads."""
    return f"{gpu.pci_address} {gpu.minor_number} {gpu.uuid} {gpu.name}"
