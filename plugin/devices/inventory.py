"""This node's GPUs as the daemon knows them: what the driver said, plus device nodes, NUMA and health.

`next_inventory` is pure but for look-ups on a `NodeTree`. Not here: talking to NVML, and what a
container gets.
"""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from plugin.devices.mig import Slice
from plugin.driver.capabilities import read_mig_minors
from plugin.driver.machine_memory import has_unified_memory, read_memory
from plugin.driver.topology.machine import NO_TOPOLOGY, Topology, make_topology
from plugin.driver.topology.sysfs import read_nics, read_numa_node, read_place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugin.driver.snapshot import GpuFacts, MigFacts, Snapshot
    from plugin.driver.topology.facts import Nic, Place

# Every CUDA process opens these besides its GPU. Mode-setting is for displays and is not handed out.
CONTROL_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
_CHANNEL = "nvidia-caps-imex-channels/channel{}"
_GPU_NODE = re.compile(r"nvidia[0-9]{1,5}")
_CHANNELS = (0,)  # the only one that NVIDIA's settings may name


class NodeTree(Protocol):
    """What the inventory asks of the node's file system."""

    def device_path(self, name: str) -> str | None:
        """Return the host path of a device node, None where it does not exist."""

    def gpu_nodes(self) -> frozenset[str]:
        """Return the names of the GPUs' own device nodes, also of those that the driver has not listed."""

    def numa_node(self, pci_address: str) -> int | None:
        """Return the NUMA node of a PCI device, None where the machine does not say."""

    def place(self, pci_address: str) -> Place:
        """Return where a PCI device is."""

    def nics(self) -> tuple[Nic, ...]:
        """Return the machine's RDMA devices."""

    def mig_minors(self) -> Mapping[str, int]:
        """Return the minors of capability nodes by the driver's names for them, such as `gpu0/gi1/ci0/access`."""

    def memory_bytes(self) -> int | None:
        """Return the memory of the machine, None where it does not say."""


@dataclass(frozen=True)
class HostTree:
    """The real file system below `/dev` and `/sys`, or other roots."""

    dev_root: Path
    sys_root: Path
    proc_root: Path = Path("/proc")

    def device_path(self, name: str) -> str | None:
        """Look for a character device: a file left in its place by a bind mount does not count."""
        path = self.dev_root / name
        try:
            return str(path) if stat.S_ISCHR(path.stat().st_mode) else None
        except OSError:
            return None

    def gpu_nodes(self) -> frozenset[str]:
        """List the folder; none where it cannot be read."""
        try:
            return frozenset(path.name for path in self.dev_root.iterdir() if _GPU_NODE.fullmatch(path.name))
        except OSError:
            return frozenset()

    def numa_node(self, pci_address: str) -> int | None:
        """Read it from sysfs."""
        return read_numa_node(self.sys_root, self.sys_root / "bus/pci/devices" / pci_address)

    def place(self, pci_address: str) -> Place:
        """Read it from sysfs."""
        return read_place(self.sys_root, pci_address)

    def nics(self) -> tuple[Nic, ...]:
        """Read them from sysfs."""
        return read_nics(self.sys_root)

    def mig_minors(self) -> Mapping[str, int]:
        """Read them from /proc; none where the driver has no such capabilities."""
        return read_mig_minors(self.proc_root)

    def memory_bytes(self) -> int | None:
        """Read it from /proc."""
        return read_memory(self.proc_root)


@dataclass(frozen=True)
class Device:
    """One GPU on offer. `unhealthy` is the reason, empty for a healthy one; `is_lost`: it did not answer."""

    gpu: GpuFacts
    path: str
    numa_node: int | None = None
    unhealthy: str = ""
    is_lost: bool = False
    slices: tuple[Slice, ...] = ()  # its MIG devices
    memory_bytes: int | None = None  # also where the driver does not say; None: not known

    @property
    def is_healthy(self) -> bool:
        """Whether a container may be given this device."""
        return not self.unhealthy


@dataclass(frozen=True)
class ControlNode:
    """A node that every container with a GPU gets."""

    name: str
    path: str


@dataclass(frozen=True)
class ImexChannel:
    """An IMEX channel, through which GPUs of several machines share memory."""

    number: int
    node: ControlNode


@dataclass(frozen=True)
class Inventory:
    """Everything on offer, in the driver's order, and what was left out and why.

    `findings` maps what is missing to a message; `driver_version` is the last one that answered.
    `topology` is rebuilt when other GPUs or links are seen, and knows the GPUs of that moment. `channels` are there,
    whether or not containers get them.
    """

    driver_version: str = ""
    devices: tuple[Device, ...] = ()
    control: tuple[ControlNode, ...] = ()
    findings: tuple[tuple[str, str], ...] = ()
    cuda_version: str = ""
    topology: Topology = NO_TOPOLOGY
    channels: tuple[ImexChannel, ...] = ()

    def gpu_of(self, uuid: str) -> str:
        """Return the GPU of a MIG device; any other UUID as it is."""
        return next((device.gpu.uuid for device in self.devices for mig in device.gpu.mig if mig.uuid == uuid), uuid)


def next_inventory(previous: Inventory, snapshot: Snapshot, tree: NodeTree) -> Inventory:
    """Return the inventory after a snapshot.

    A device that was on offer and is now missing stays in the list as unhealthy: the kubelet then
    keeps its capacity, and a pod that holds it is told. It goes when another GPU is in its place. With another
    driver everything starts from nothing.
    """
    findings: list[tuple[str, str]] = []
    devices: dict[str, Device] = {}
    minors = tree.mig_minors() if any(gpu.mig for gpu in snapshot.gpus) else {}
    for gpu in snapshot.gpus:
        path = tree.device_path(f"nvidia{gpu.minor}")
        if path is None:
            findings.append(
                (f"nvidia{gpu.minor}", f"{gpu.uuid} is not offered: it has no device node nvidia{gpu.minor}")
            )
        else:
            numa_node, slices = tree.numa_node(gpu.pci_address), _slices(gpu, minors, tree)
            devices[gpu.uuid] = Device(gpu, path, numa_node, slices=slices, memory_bytes=_memory(gpu, tree))
    known = previous.devices if previous.driver_version == snapshot.driver_version else ()
    places = {gpu.pci_address: gpu.uuid for gpu in snapshot.gpus}
    for device in known:
        is_exchanged = places.get(device.gpu.pci_address, device.gpu.uuid) != device.gpu.uuid
        if device.gpu.uuid not in devices and not is_exchanged:
            is_lost = all(gpu.uuid != device.gpu.uuid for gpu in snapshot.gpus)
            devices[device.gpu.uuid] = replace(device, unhealthy=_why_missing(device, snapshot), is_lost=is_lost)
    findings.extend(_lost(snapshot))
    control = _control_nodes(tree, findings)
    ordered = tuple(sorted(devices.values(), key=lambda device: (device.gpu.index, device.gpu.uuid)))
    topology = _next_topology(previous.topology, snapshot, tree)
    return Inventory(
        snapshot.driver_version,
        ordered,
        control,
        tuple(findings),
        snapshot.cuda_version,
        topology,
        _channels(tree),
    )


def _channels(tree: NodeTree) -> tuple[ImexChannel, ...]:
    paths = {number: tree.device_path(_CHANNEL.format(number)) for number in _CHANNELS}
    return tuple(
        ImexChannel(number, ControlNode(_CHANNEL.format(number), path)) for number, path in paths.items() if path
    )


def _memory(gpu: GpuFacts, tree: NodeTree) -> int | None:
    """Return what a GPU has: what the driver says, else the machine's memory where the two have one."""
    if gpu.memory_bytes is None and has_unified_memory(gpu.compute_capability):
        return tree.memory_bytes()
    return gpu.memory_bytes


def _slices(gpu: GpuFacts, minors: Mapping[str, int], tree: NodeTree) -> tuple[Slice, ...]:
    return tuple(_slice(gpu, facts, minors, tree) for facts in gpu.mig)


def _slice(gpu: GpuFacts, facts: MigFacts, minors: Mapping[str, int], tree: NodeTree) -> Slice:
    """Return a MIG device with its two capability nodes, of the GPU instance and of the compute instance."""
    instance = f"gpu{gpu.minor}/gi{facts.gpu_instance}"
    nodes = []
    for capability in (f"{instance}/access", f"{instance}/ci{facts.compute_instance}/access"):
        if capability not in minors:
            return Slice(facts, problem=f"the driver names no capability node for {capability}")
        name = f"nvidia-caps/nvidia-cap{minors[capability]}"
        path = tree.device_path(name)
        if path is None:
            return Slice(facts, problem=f"it has no device node {name}")
        nodes.append((name, path))
    return Slice(facts, tuple(nodes))


def _next_topology(previous: Topology, snapshot: Snapshot, tree: NodeTree) -> Topology:
    """Return the topology of the GPUs that answered; nothing is walked while they are the same."""
    gpus = sorted(snapshot.gpus, key=lambda gpu: (gpu.index, gpu.uuid))
    ids = [gpu.uuid for gpu in gpus]
    if previous.is_of(ids, snapshot.links):
        return previous
    return make_topology(ids, [tree.place(gpu.pci_address) for gpu in gpus], snapshot.links, tree.nics())


def without_driver(previous: Inventory, reason: str) -> Inventory:
    """Return the inventory while the driver does not answer: everything known is unhealthy."""
    devices = tuple(replace(device, unhealthy=reason) for device in previous.devices)
    return replace(previous, devices=devices)


def _why_missing(device: Device, snapshot: Snapshot) -> str:
    for lost in snapshot.lost:
        if lost.uuid == device.gpu.uuid or (lost.uuid is None and lost.index == device.gpu.index):
            return lost.reason
    if any(gpu.uuid == device.gpu.uuid for gpu in snapshot.gpus):
        return f"its device node {device.path} is gone"
    return "nvml does not list it any more"


def _lost(snapshot: Snapshot) -> list[tuple[str, str]]:
    return [
        (
            f"gpu {lost.index}",
            f"gpu {lost.index} ({lost.uuid or 'uuid unknown'}) does not answer: {lost.reason}",
        )
        for lost in snapshot.lost
    ]


def _control_nodes(tree: NodeTree, findings: list[tuple[str, str]]) -> tuple[ControlNode, ...]:
    nodes = []
    for name in CONTROL_NODES:
        path = tree.device_path(name)
        if path is None:
            findings.append((name, f"device node {name} does not exist and is left out of every container"))
        else:
            nodes.append(ControlNode(name, path))
    return tuple(nodes)
