"""What a node is asked to be, and the GPUs that follow from it. Plain values; nothing here touches the machine."""

from __future__ import annotations

import re
import uuid
from dataclasses import asdict, dataclass

from lab.machine.errors import SiteError
from lab.trees import find_suite

NAME = re.compile(r"[a-z][a-z0-9-]{0,11}")
MAX_GPUS = 16  # stand-in device numbers reach that far
NAMESPACE = uuid.UUID("6f4a6c2e-6770-7561-7073-696d6c616200")
FIRST_BUS = 0x10


@dataclass(frozen=True)
class Model:
    """A GPU model with its PCI device id (source: the PCI ID database)."""

    name: str
    device: str


MODELS = {
    "A100": Model("NVIDIA A100-SXM4-40GB", "20b0"),
    "H100": Model("NVIDIA H100 80GB HBM3", "2330"),
    "L4": Model("NVIDIA L4", "27b8"),
    "T4": Model("Tesla T4", "1eb8"),
}


@dataclass(frozen=True)
class Gpu:
    """One GPU of a node: a line of ``/etc/gpusim/gpus``."""

    pci_address: str
    minor: int
    uuid: str
    model: Model
    numa_node: int

    def line(self) -> str:
        """Return ``pci_address minor uuid model…``, the form that the simulated module reads."""
        return f"{self.pci_address} {self.minor} {self.uuid} {self.model.name}"


@dataclass(frozen=True)
class NodeSpec:
    """A node: its suite, its GPUs, and the kernel module version that it loads at boot ("" for none)."""

    name: str
    suite: str = "trixie"
    gpus: int = 4
    driver_module: str = ""
    model: str = "A100"

    def __post_init__(self) -> None:
        check_name("node", self.name)
        find_suite(self.suite)
        if not 0 <= self.gpus <= MAX_GPUS:
            raise SiteError(f"node {self.name}: {self.gpus} GPUs", hint=f"0 to {MAX_GPUS} can be simulated")
        if self.model not in MODELS:
            raise SiteError(f"node {self.name}: no model {self.model!r}", hint=f"models: {', '.join(MODELS)}")

    def devices(self, site: str) -> tuple[Gpu, ...]:
        """Return the node's GPUs; the same site, node and index always give the same UUID."""
        return tuple(self._device(site, index) for index in range(self.gpus))

    def _device(self, site: str, index: int) -> Gpu:
        return Gpu(
            pci_address=f"0000:{FIRST_BUS + index:02x}:00.0",
            minor=index,
            uuid=f"GPU-{uuid.uuid5(NAMESPACE, f'{site}/{self.name}/{index}')}",
            model=MODELS[self.model],
            numa_node=index * 2 // max(self.gpus, 1),
        )

    def to_json(self) -> dict[str, str | int]:
        """Return the form kept in the node's folder."""
        return asdict(self)


def check_name(kind: str, name: str) -> None:
    """Names become parts of interface names, control groups and host names."""
    if not NAME.fullmatch(name):
        hint = "a lower-case letter, then up to 11 letters, digits or hyphens"
        raise SiteError(f"{kind} name {name!r} does not fit", hint=hint)
