"""Reads how GPUs are cut by MIG, and cuts them so again: the kernel module forgets instances when it is unloaded.

Profiles are the numbers of NVIDIA's header (``NVML_GPU_INSTANCE_PROFILE_…``), which mean the same in every driver.
Instances that somebody else has made meanwhile are never destroyed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ansible_collections.grapnel.node.plugins.module_utils.driver.mig.nvml import NvmlError

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.driver.mig.nvml import Instance

_MAX = 1024


class MigError(Exception):
    """GPUs are not cut as they were; the message names them, and why."""


class Cutter(Protocol):
    """What is asked of NVML; see `nvml.Nvml`."""

    def gpus(self) -> dict[str, int]: ...
    def is_mig(self, gpu: int, /) -> bool: ...
    def enable_mig(self, gpu: int, /) -> None: ...
    def gpu_profiles(self, gpu: int, /) -> dict[int, tuple[int, int]]: ...
    def compute_profiles(self, instance: int, /) -> dict[int, tuple[int, int]]: ...
    def gpu_instances(self, gpu: int, profile: tuple[int, int], /) -> list[Instance]: ...
    def compute_instances(self, instance: int, profile: tuple[int, int], /) -> list[Instance]: ...
    def make_gpu_instance(self, gpu: int, profile: tuple[int, int], start: int, size: int, /) -> int: ...
    def make_compute_instance(self, instance: int, profile: tuple[int, int], /) -> None: ...


@dataclass(frozen=True)
class Slice:
    """A compute instance: the header's number of its profile, and where it lies in its GPU instance."""

    profile: int
    start: int
    size: int


@dataclass(frozen=True)
class Cut:
    """A GPU instance with its compute instances, in the order of their ids."""

    profile: int
    start: int
    size: int
    slices: tuple[Slice, ...] = ()


Layout = dict[str, tuple[Cut, ...]]  # by the UUID of the GPU; GPUs without MIG mode are left out


def read_layout(nvml: Cutter) -> Layout:
    """Return how the GPUs in MIG mode are cut; raises `NvmlError`."""
    return {uuid: tuple(cut for _, cut in _cuts(nvml, gpu)) for uuid, gpu in nvml.gpus().items() if nvml.is_mig(gpu)}


def _cuts(nvml: Cutter, gpu: int) -> list[tuple[int, Cut]]:
    """Return the GPU instances with their handles, in the order of their ids."""
    found = [
        (one, Cut(number, one.start, one.size, _slices(nvml, one.handle)))
        for number, profile in nvml.gpu_profiles(gpu).items()
        for one in nvml.gpu_instances(gpu, profile)
    ]
    return [(one.handle, cut) for one, cut in sorted(found, key=lambda each: each[0].id)]


def _slices(nvml: Cutter, instance: int) -> tuple[Slice, ...]:
    found = [
        (one.id, Slice(number, one.start, one.size))
        for number, profile in nvml.compute_profiles(instance).items()
        for one in nvml.compute_instances(instance, profile)
    ]
    return tuple(each for _, each in sorted(found, key=lambda one: one[0]))


def restore_layout(nvml: Cutter, wanted: Layout) -> list[str]:
    """Cut GPUs as they were, as far as they are not; returns what was made, and raises `MigError`, `NvmlError`.

    Made in the order of the former ids, so that the driver gives the same ids and UUIDs again.
    """
    made, problems, gpus = [], [], nvml.gpus()
    for uuid, cuts in wanted.items():
        if uuid not in gpus:
            problems.append(f"{uuid} is not there to be cut by mig")
            continue
        try:
            made += [f"{uuid}: {line}" for line in _restore(nvml, gpus[uuid], cuts)]
        except (MigError, NvmlError) as error:
            problems.append(f"{uuid}: {error}")
    if problems:
        raise MigError("; ".join(problems))
    found = read_layout(nvml)
    wrong = [uuid for uuid, cuts in wanted.items() if {*found.get(uuid, ())} != {*cuts}]
    if wrong:
        raise MigError(f"the mig instances of {', '.join(wrong)} are not those that they had")
    return made


def _restore(nvml: Cutter, gpu: int, cuts: tuple[Cut, ...]) -> list[str]:
    made = []
    if not nvml.is_mig(gpu):
        nvml.enable_mig(gpu)
        made.append("mig mode")
    present = {(cut.profile, cut.start): (handle, cut) for handle, cut in _cuts(nvml, gpu)}
    foreign = [cut for place, (_, cut) in present.items() if place not in {(one.profile, one.start) for one in cuts}]
    if foreign:
        places = ", ".join(f"profile {cut.profile} at {cut.start}" for cut in foreign)
        raise MigError(f"somebody has made other mig instances: {places}")
    profiles = nvml.gpu_profiles(gpu)
    for cut in cuts:
        handle, there = present.get((cut.profile, cut.start), (0, Cut(cut.profile, cut.start, cut.size)))
        if not handle:
            handle = nvml.make_gpu_instance(gpu, _known(profiles, cut.profile), cut.start, cut.size)
            made.append(f"instance of profile {cut.profile} at {cut.start}")
        made += _restore_slices(nvml, handle, cut, there)
    return made


def _restore_slices(nvml: Cutter, handle: int, cut: Cut, there: Cut) -> list[str]:
    profiles = nvml.compute_profiles(handle)
    if there.slices != cut.slices[: len(there.slices)]:
        raise MigError(f"somebody has made other compute instances in profile {cut.profile} at {cut.start}")
    missing = cut.slices[len(there.slices) :]
    for one in missing:
        nvml.make_compute_instance(handle, _known(profiles, one.profile))
    return [f"compute instance of profile {one.profile}" for one in missing]


def _known(profiles: dict[int, tuple[int, int]], number: int) -> tuple[int, int]:
    if number not in profiles:
        raise MigError(f"this driver has no mig profile {number} for it")
    return profiles[number]


def render_layout(layout: Layout) -> dict[str, Any]:
    """Return a layout as JSON has it."""
    return {
        uuid: [
            {
                "profile": cut.profile,
                "start": cut.start,
                "size": cut.size,
                "slices": [{"profile": one.profile, "start": one.start, "size": one.size} for one in cut.slices],
            }
            for cut in cuts
        ]
        for uuid, cuts in layout.items()
    }


def parse_layout(document: object) -> Layout:
    """Return the layout of a JSON value; raises ValueError."""
    if not isinstance(document, dict):
        raise ValueError("the mig layout is not an object")
    return {str(uuid): tuple(_parse_cut(each) for each in _list(cuts)) for uuid, cuts in document.items()}


def _parse_cut(value: object) -> Cut:
    profile, start, size = _numbers(value)
    slices = _list(value.get("slices")) if isinstance(value, dict) else []
    return Cut(profile, start, size, tuple(Slice(*_numbers(each)) for each in slices))


def _numbers(value: object) -> tuple[int, int, int]:
    return _number(value, "profile"), _number(value, "start"), _number(value, "size")


def _number(value: object, name: str) -> int:
    found = value.get(name) if isinstance(value, dict) else None
    if type(found) is not int or not 0 <= found < _MAX:
        raise ValueError(f"a mig instance has no {name}")
    return found


def _list(value: object) -> list[Any]:
    if not isinstance(value, list) or len(value) > _MAX:
        raise ValueError("mig instances are not a list")
    return value
