"""What NVML and sysfs said about connections: values as they were read, nothing concluded from them yet."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

NO_CLUSTER = "00000000-0000-0000-0000-000000000000"  # of a fabric that ends with its machine


class Remote(Enum):
    """What is at the other end of an NVLink."""

    GPU = "gpu"
    SWITCH = "switch"
    OTHER = "other"  # a CPU, for example


@dataclass(frozen=True)
class NvLink:
    """One active NVLink of a GPU. `address` is the PCI address of the other end, "" where it was not said."""

    remote: Remote
    address: str


@dataclass(frozen=True)
class GpuLinks:
    """The active NVLinks of a GPU, and its place in an NVLink fabric.

    `nvlinks` is None where they could not be read, which is another thing than none. `fabric` names cluster and
    clique, is "" while the fabric is not ready, and None where there is none or the driver does not say.
    """

    uuid: str
    nvlinks: tuple[NvLink, ...] | None = ()
    fabric: str | None = None


@dataclass(frozen=True)
class LinkFacts:
    """All connections that NVML knows. A level is NVML's number for the common ancestor of two GPUs, by uuid."""

    gpus: tuple[GpuLinks, ...] = ()
    levels: tuple[tuple[str, str, int], ...] = ()


NO_LINKS = LinkFacts()


@dataclass(frozen=True)
class Place:
    """Where a PCI device is. `path` has the devices above it and itself, from the host bridge down (sysfs' names)."""

    address: str
    numa_node: int | None = None
    path: tuple[str, ...] = ()


@dataclass(frozen=True)
class Nic:
    """An RDMA device (`/sys/class/infiniband`) and its place."""

    name: str
    place: Place
