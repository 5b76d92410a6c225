"""Joins what the driver says of GPUs with who has them: pods by the kubelet, processes by NVML and by open nodes. Pure.

Not here: asking any of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from plugin.changes.mig_layout.model import GpuLayout, Instance

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from plugin.driver.mig_instances import CuttableGpu, GpuInstance
    from plugin.holdings.holders.scan import Holder

_GPU_NODE = re.compile(r".*/nvidia([0-9]{1,4})")
_CAPABILITY = re.compile(r".*/nvidia-cap([0-9]{1,6})")
# Persistence is what keeps the driver loaded: a change of the mode passes it by. By its unit: its name is anybody's.
_HARMLESS = "nvidia-persistenced.service"


@dataclass(frozen=True)
class Users:
    """Who has what. `pods` by UUID of GPU or MIG device, in words; `minors` of capability nodes by the driver's names.

    `daemon_pid` is that of the running daemon, which lets go by itself.
    """

    pods: Mapping[str, Sequence[str]] = field(default_factory=dict)
    processes: Sequence[Holder] = ()
    minors: Mapping[str, int] = field(default_factory=dict)
    daemon_pid: int = 0


NOBODY = Users()


def names_of(processes: Iterable[Holder], minors: Mapping[str, int]) -> Users:
    """Return nobody but those whom NVML names by a number, in words: what a process has open does not count here."""
    return Users(processes=[replace(each, devices=()) for each in processes], minors=minors)


def with_users(gpus: Iterable[CuttableGpu], users: Users = NOBODY) -> tuple[GpuLayout, ...]:
    """Return the GPUs as the plan wants them."""
    processes = [each for each in users.processes if each.pid != users.daemon_pid and each.unit != _HARMLESS]
    return tuple(_joined(gpu, users, processes) for gpu in gpus)


def _joined(gpu: CuttableGpu, users: Users, processes: Sequence[Holder]) -> GpuLayout:
    pods = tuple(f"pod {who}" for who in users.pods.get(gpu.uuid, ()))
    openers = [each for each in processes if gpu.minor in _numbers(each, _GPU_NODE)]
    names = {each.pid: each for each in processes}
    instances = tuple(_instance(gpu, each, pods, users, processes) for each in gpu.instances)
    working = [_words(pid, names) for pid in gpu.pids if pid != users.daemon_pid]
    for_claims = tuple(_instance(gpu, each, pods, users, processes) for each in gpu.for_claims)
    held = [who for instance in (*instances, *for_claims) for who in instance.holders]
    held += [f"a claim ({each})" for each in for_claims]
    return GpuLayout(
        index=gpu.index,
        uuid=gpu.uuid,
        model=gpu.model,
        pci_device_id=gpu.pci_device_id,
        pci_subsystem_id=gpu.pci_subsystem_id,
        is_cut=gpu.is_cut,
        is_pending=gpu.is_pending,
        needs_reset=gpu.needs_reset,
        profiles=gpu.profiles,
        instances=instances,
        for_claims=for_claims,
        holders=_once((*pods, *held, *working, *(_describe(each) for each in openers))),
        problem=gpu.problem,
    )


def _instance(
    gpu: CuttableGpu, found: GpuInstance, whole: tuple[str, ...], users: Users, processes: Sequence[Holder]
) -> Instance:
    """Return an instance with its users; whoever has the GPU as a whole has it, too."""
    pods = [f"pod {who}" for uuid in found.uuids for who in users.pods.get(uuid, ())]
    capabilities = set(_capabilities(gpu, found, users.minors))
    names = {each.pid: each for each in processes}
    openers = [_describe(each) for each in processes if capabilities & _numbers(each, _CAPABILITY)]
    working = [_words(pid, names) for pid in found.pids]
    compute = tuple(slices for _, slices in found.compute)
    holders = _once((*whole, *pods, *working, *openers))
    return Instance(found.start, found.size, found.profile, compute, found.id, holders)


def _capabilities(gpu: CuttableGpu, found: GpuInstance, minors: Mapping[str, int]) -> Iterator[int]:
    for name in capability_names(gpu.minor, found):
        if name in minors:
            yield minors[name]


def capability_names(minor: int, instance: GpuInstance) -> list[str]:
    """Return the driver's names for the capabilities of an instance and its compute instances."""
    own = f"gpu{minor}/gi{instance.id}"
    return [f"{own}/access", *(f"{own}/ci{number}/access" for number, _ in instance.compute)]


def _numbers(holder: Holder, pattern: re.Pattern[str]) -> set[int]:
    return {int(match[1]) for device in holder.devices if (match := pattern.fullmatch(device))}


def _describe(holder: Holder) -> str:
    where = holder.pod_name and f" of pod {holder.pod_name}"
    return f"process {holder.pid} ({holder.command}){where or ''}"


def _words(pid: int, known: Mapping[int, Holder]) -> str:
    return _describe(known[pid]) if pid in known else f"process {pid}"


def _once(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))
