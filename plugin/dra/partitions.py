"""MIG devices that are made when a claim with them is prepared, and the counters by which they exclude one another.

Each place that the driver lists for a profile is one device of a slice: a partition. All partitions of a GPU draw on
one set of counters. Set and counters have the names of NVIDIA's driver (`cmd/gpu-kubelet-plugin/partitions.go`, 0.5.0)
but for the GPU's own, which is its UUID: quotas that count `memory` per GPU find it.

GPUs in MIG mode alone: turning that mode on takes a GPU that no process has open, and up to NVIDIA Ampere a reset,
neither of which a pod that starts can wait for. A GPU in MIG mode runs nothing as a whole: its largest partition is it.
Pure.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from plugin.dra.devices import (
    CounterSet,
    DraDevice,
    Draw,
    common_attributes,
    mig_attributes,
    mig_capacity,
    name_of,
    number,
    quantity,
)

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from plugin.devices.inventory import Device, Inventory
    from plugin.driver.gpu_state import GpuState, MigDevice
    from plugin.driver.mig_instances import CuttableGpu, GpuInstance, InstanceProfile

    Amounts = dict[str, int]

_MAX_NAME = 63
_MAX_COUNTERS = 32  # of one set
_MIB = 2**20
_MEMORY = "memory"
_NAME = re.compile(r"gpu-[0-9a-z-]+-mig(-[0-9a-z]+)?-[0-9]+-[0-9]+")
_NO_NAME = re.compile(r"[^a-z0-9]+")


class Partition(NamedTuple):
    """A place for a GPU instance of a profile that has one compute instance, which fills it. `gpu` is a UUID."""

    gpu: str
    profile: str
    start: int
    size: int

    def is_at(self, instance: GpuInstance) -> bool:
        """Whether an instance of the same GPU is just this one."""
        return (instance.profile, instance.start, instance.size) == self[1:]


def name_of_partition(gpu: str, profile: InstanceProfile, start: int) -> str:
    """Return the name of a partition: NVIDIA's, with the GPU's UUID where that has its minor number."""
    begin, end = f"{name_of(gpu)}-mig-", f"-{profile.id}-{start}"
    told = _NO_NAME.sub("", profile.name.lower())[: _MAX_NAME - len(begin) - len(end)]
    return f"{begin}{told}{end}" if told else f"{begin[:-1]}{end}"


def is_partition(name: str) -> bool:
    """Whether a device of that name is a partition: other MIG devices and GPUs are called by their UUIDs."""
    return _NAME.fullmatch(name) is not None


def partitions_of(gpu: CuttableGpu) -> dict[str, Partition]:
    """Return all partitions of a GPU in MIG mode by their names, those at its end first.

    The scheduler takes the first that fits, and some profiles have their only place at the GPU's beginning.
    """
    if not gpu.is_cut or gpu.problem:
        return {}
    places = ((each, *place) for each in gpu.profiles if each.size is not None for place in each.places)
    return {
        name_of_partition(gpu.uuid, profile, start): Partition(gpu.uuid, profile.name, start, size)
        for profile, start, size in sorted(places, key=lambda each: -each[1])
    }


def set_apart(gpus: Iterable[CuttableGpu], names: Container[str]) -> tuple[CuttableGpu, ...]:
    """Return GPUs of which the instances that partitions of these names are made of are told apart from others."""
    return tuple(_set_apart(gpu, names) for gpu in gpus)


def _set_apart(gpu: CuttableGpu, names: Container[str]) -> CuttableGpu:
    places = [place for name, place in partitions_of(gpu).items() if name in names]
    ours = tuple(each for each in gpu.instances if any(place.is_at(each) for place in places))
    return replace(gpu, instances=tuple(each for each in gpu.instances if each not in ours), for_claims=ours)


def without_partitions(states: Mapping[str, GpuState], names: Iterable[str]) -> dict[str, GpuState]:
    """Return what GPUs are set up as, without MIG devices that are made for claims: those are not to be made again."""
    known = frozenset(names)
    return {uuid: _without(uuid, state, known) for uuid, state in states.items()}


def _without(uuid: str, state: GpuState, names: frozenset[str]) -> GpuState:
    if not state.mig:
        return state
    return replace(state, mig=tuple(each for each in state.mig if not _is_named(uuid, each, names)))


def _is_named(uuid: str, device: MigDevice, names: frozenset[str]) -> bool:
    begin, end = f"{name_of(uuid)}-mig-{_NO_NAME.sub('', device.short_profile.lower())}-", f"-{device.start}"
    return any(each.startswith(begin) and each.endswith(end) for each in names)


def find_partitions(
    device: Device, inventory: Inventory, gpu: CuttableGpu, others: Sequence[GpuInstance], problems: Mapping[str, str]
) -> tuple[DraDevice, ...]:
    """Return the partitions that can be made on a GPU beside the instances of others, which were not made for claims.

    `problems` are those of partitions that are made, by their names.
    """
    profiles = {each.name: each for each in gpu.profiles if each.size is not None}
    every = partitions_of(gpu)
    all_of_it = _all_of_it(profiles, every.values())
    left = dict(all_of_it)
    for each in others:
        for name, amount in _drawn(profiles.get(each.profile), each.start, each.size, all_of_it).items():
            left[name] = max(0, left[name] - amount)
    counters = CounterSet(f"{name_of(gpu.uuid)}-counter-set", _shown(left))
    common = common_attributes(device, inventory)
    found = []
    for name, partition in every.items():
        drawn = _drawn(profiles[partition.profile], partition.start, partition.size, all_of_it)
        if any(amount > left[key] for key, amount in drawn.items()):
            continue
        found.append(
            DraDevice(
                name,
                name,
                (gpu.uuid, *(other for other, place in every.items() if _overlap(partition, place))),
                (),
                {**mig_attributes(gpu.uuid, partition.profile), **common},
                mig_capacity(profiles[partition.profile].size),
                device.unhealthy or problems.get(name, ""),
                device.is_lost,
                draw=Draw(counters, _shown(drawn)),
            )
        )
    return tuple(found)


def _overlap(one: Partition, other: Partition) -> bool:
    return one.start < other.start + other.size and other.start < one.start + one.size


def _all_of_it(profiles: Mapping[str, InstanceProfile], every: Iterable[Partition]) -> Amounts:
    """Return what a GPU has: as much of each kind as its largest profile, and its memory slices.

    Where the driver makes fewer instances of a profile than there is room for, that is a counter as well.
    """
    found: Amounts = {}
    for profile in profiles.values():
        for name, amount in _sizes(profile).items():
            found[name] = max(found.get(name, 0), amount)
    places = tuple(every)
    found |= {_slice(index): 1 for index in range(max((each.start + each.size for each in places), default=0))}
    for profile in profiles.values():
        ends_of_last = 0
        room = 0
        for start, size in sorted(profile.places):
            if start >= ends_of_last:
                room, ends_of_last = room + 1, start + size
        if profile.most < room and len(found) < _MAX_COUNTERS:
            found[_rare(profile)] = profile.most
    return found


def _drawn(profile: InstanceProfile | None, start: int, size: int, all_of_it: Amounts) -> Amounts:
    """Return what an instance takes; of a profile that is not known its memory slices alone."""
    found = {name: 1 for index in range(start, start + size) if (name := _slice(index)) in all_of_it}
    if profile is None:
        return found
    rare = {_rare(profile): 1} if _rare(profile) in all_of_it else {}
    return {**_sizes(profile), **found, **rare}


def _slice(index: int) -> str:
    return f"memory-slice-{index}"


def _rare(profile: InstanceProfile) -> str:
    return f"profile-{profile.id}"


def _sizes(profile: InstanceProfile) -> Amounts:
    size = profile.size
    if size is None:
        return {}
    return {
        _MEMORY: size.memory_mib * _MIB,
        "multiprocessors": size.multiprocessors,
        "copy-engines": size.copy_engines,
        "decoders": size.decoders,
        "encoders": size.encoders,
        "jpeg-engines": size.jpeg_engines,
        "ofa-engines": size.ofa_engines,
    }


def _shown(amounts: Amounts) -> Mapping[str, str]:
    return {name: quantity(amount) if name == _MEMORY else number(amount) for name, amount in amounts.items()}
