"""Models of GPUs with the figures of their data sheets, and machines built from them.

Machines follow the usual baseboards: GPUs in pairs below a PCIe switch, half of them at each NUMA node, NVLink either
to each other (up to 4 GPUs) or to switches.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

from lab.nvml.machine import (
    GIB,
    MIB,
    NOT_SUPPORTED,
    Architecture,
    Brand,
    Gpu,
    Link,
    Machine,
    Mig,
    NvLinkRemote,
)

_NAMESPACE = uuid.UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")
_ALL_TO_ALL_GPUS = 4
_GPUS_PER_SWITCH = 2
_GPUS_WITH_WIDE_BUSES = 15  # bus numbers 10, 20, … end at f0


@dataclass(frozen=True)
class Model:
    """A GPU as it comes out of the box, and how many NVLinks it has."""

    gpu: Gpu
    links: int = 0
    link_version: int = 3


_A100 = Gpu(
    name="NVIDIA A100-SXM4-40GB",
    pci_device_id=0x20B010DE,
    pci_subsystem_id=0x134F10DE,
    mig_capable=True,
)

MODELS = {
    "a100-40gb": Model(_A100, links=12),
    "a100-80gb": Model(
        replace(
            _A100,
            name="NVIDIA A100-SXM4-80GB",
            pci_device_id=0x20B210DE,
            memory_total=80 * GIB,
            bar1_total=128 * GIB,
        ),
        links=12,
    ),
    "h100-80gb": Model(
        Gpu(
            name="NVIDIA H100 80GB HBM3",
            pci_device_id=0x233010DE,
            pci_subsystem_id=0x16C110DE,
            vbios="96.00.74.00.01",
            architecture=Architecture.HOPPER,
            compute_major=9,
            cores=16896,
            pcie_generation=5,
            memory_total=81_559 * MIB,
            memory_reserved=480 * MIB,
            bar1_total=128 * GIB,
            power_usage_mw=70_000,
            power_limit_mw=700_000,
            power_limit_default_mw=700_000,
            power_limit_min_mw=200_000,
            power_limit_max_mw=700_000,
            clock_sm=345,
            clock_memory=2619,
            clock_sm_max=1980,
            clock_memory_max=2619,
            mig_capable=True,
        ),
        links=18,
        link_version=4,
    ),
    "l4": Model(
        Gpu(
            name="NVIDIA L4",
            pci_device_id=0x27B810DE,
            pci_subsystem_id=0x16CA10DE,
            vbios="95.04.29.00.06",
            architecture=Architecture.ADA,
            compute_minor=9,
            cores=7424,
            memory_total=24 * GIB,
            memory_reserved=450 * MIB,
            bar1_total=32 * GIB,
            power_usage_mw=16_000,
            power_limit_mw=72_000,
            power_limit_default_mw=72_000,
            power_limit_min_mw=40_000,
            power_limit_max_mw=72_000,
            clock_memory=405,
            clock_sm_max=2040,
            clock_memory_max=6251,
            performance_state=8,
        )
    ),
    "t4": Model(
        Gpu(
            name="Tesla T4",
            pci_device_id=0x1EB810DE,
            pci_subsystem_id=0x12A210DE,
            vbios="90.04.38.00.03",
            brand=Brand.TESLA,
            architecture=Architecture.TURING,
            compute_major=7,
            compute_minor=5,
            cores=2560,
            pcie_generation=3,
            memory_total=16 * GIB,
            memory_reserved=400 * MIB,
            bar1_total=256 * MIB,
            power_usage_mw=9_000,
            power_limit_mw=70_000,
            power_limit_default_mw=70_000,
            power_limit_min_mw=60_000,
            power_limit_max_mw=70_000,
            clock_memory=405,
            clock_sm_max=1590,
            clock_memory_max=5001,
            performance_state=8,
        )
    ),
    # The last generation without the open kernel module.
    "v100-32gb": Model(
        Gpu(
            name="Tesla V100-SXM2-32GB",
            pci_device_id=0x1DB510DE,
            pci_subsystem_id=0x124910DE,
            vbios="88.00.80.00.04",
            brand=Brand.TESLA,
            architecture=Architecture.VOLTA,
            compute_major=7,
            cores=5120,
            pcie_generation=3,
            memory_total=32 * GIB,
            bar1_total=32 * GIB,
            power_usage_mw=43_000,
            power_limit_mw=300_000,
            power_limit_default_mw=300_000,
            power_limit_min_mw=150_000,
            power_limit_max_mw=300_000,
            clock_sm=135,
            clock_memory=877,
            clock_sm_max=1530,
            clock_memory_max=877,
        ),
        links=6,
        link_version=2,
    ),
}


def gpu_uuid(seed: str, index: int) -> str:
    """Return the UUID of a GPU: always the same for a seed (a machine's name) and an index."""
    return f"GPU-{uuid.uuid5(_NAMESPACE, f'{seed}/{index}')}"


def machine(model: str = "a100-40gb", count: int = 1, *, seed: str = "lab", last: str = "") -> Machine:
    """Return a machine with `count` GPUs of one model; `last` is the model of the last one, where it is another.

    Raises KeyError for a model that is not in MODELS.
    """
    chosen = [MODELS[model]] * count
    if last:
        chosen[-1] = MODELS[last]
    gpus = tuple(_place(each.gpu, index, count, seed) for index, each in enumerate(chosen))
    if last:  # GPUs of two models have no links with one another
        return Machine(gpus=gpus)
    return Machine(gpus=tuple(replace(gpu, links=_links(MODELS[model], gpu, gpus)) for gpu in gpus))


def spark() -> Machine:
    """Return a DGX Spark: one GB10, whose memory is the machine's, so that the driver does not say how much it has."""
    [gpu] = machine("l4").gpus
    gb10 = replace(gpu, name="NVIDIA GB10", architecture=Architecture.BLACKWELL, compute_major=12, compute_minor=1)
    return Machine(gpus=(gb10,)).with_failure("nvmlDeviceGetMemoryInfo", NOT_SUPPORTED)


def _place(gpu: Gpu, index: int, count: int, seed: str) -> Gpu:
    switch = index // _GPUS_PER_SWITCH
    node = index * 2 // count if count > 1 else 0
    return replace(
        gpu,
        uuid=gpu_uuid(seed, index),
        serial=f"{1650000000000 + uuid.uuid5(_NAMESPACE, f'{seed}/{index}').int % 10**9}",
        pci_address=f"0000:{0x10 + (0x10 if count <= _GPUS_WITH_WIDE_BUSES else 1) * index:02x}:00.0",
        minor_number=index,
        board=index,
        pcie_switch=switch,
        pcie_switch_tree=switch,
        host_bridge=switch,
        numa_node=node,
    )


def _links(model: Model, gpu: Gpu, gpus: tuple[Gpu, ...]) -> tuple[Link, ...]:
    peers = [peer.pci_address for peer in gpus if peer is not gpu]
    if not peers or not model.links:
        return ()
    if len(gpus) <= _ALL_TO_ALL_GPUS:
        ends = [(peers[link * len(peers) // model.links], NvLinkRemote.GPU) for link in range(model.links)]
    else:
        ends = [(f"0000:{0xC0 + link % 6:02x}:00.0", NvLinkRemote.SWITCH) for link in range(model.links)]
    return tuple(Link(True, end, kind, model.link_version) for end, kind in ends)


@dataclass(frozen=True)
class MigProfile:
    """A GPU instance with one compute instance that fills it."""

    name: str
    slices: int
    memory: int
    multiprocessors: int
    decoders: int = 0


MIG_PROFILES = {
    "a100-40gb": (
        MigProfile("1g.5gb", 1, 4864 * MIB, 14),
        MigProfile("2g.10gb", 2, 9856 * MIB, 28, 1),
        MigProfile("3g.20gb", 3, 19968 * MIB, 42, 2),
        MigProfile("4g.20gb", 4, 19968 * MIB, 56, 2),
        MigProfile("7g.40gb", 7, 40192 * MIB, 98, 5),
    ),
}


_MEMORY_SLICES = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}  # by slices of compute: a GPU has eight of memory


def with_mig(whole: Machine, gpu: int, profiles: list[str], *, model: str = "a100-40gb") -> Machine:
    """Return the machine with one GPU in MIG mode and cut into these profiles. Raises KeyError for an unknown one."""
    known = {profile.name: profile for profile in MIG_PROFILES[model]}
    parent = whole.gpus[gpu].uuid
    sizes = [_MEMORY_SLICES[known[name].slices] for name in profiles]
    migs = tuple(
        replace(_mig(known[name], index, parent), placement_start=sum(sizes[:index]), placement_size=sizes[index])
        for index, name in enumerate(profiles)
    )
    return whole.with_gpu(gpu, mig_enabled=True, mig_pending=True, migs=migs)


def _mig(profile: MigProfile, index: int, parent: str) -> Mig:
    return Mig(
        index=index,
        uuid=f"MIG-{uuid.uuid5(_NAMESPACE, f'{parent}/mig/{index}')}",
        profile=profile.name,
        gpu_instance=7 + index,
        memory_total=profile.memory,
        multiprocessors=profile.multiprocessors,
        gpu_slices=profile.slices,
        compute_slices=profile.slices,
        copy_engines=profile.slices,
        decoders=profile.decoders,
    )
