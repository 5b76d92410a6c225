"""Tells what MIG profiles mean, and whether a GPU can have certain ones side by side.

Names and placements are from NVIDIA's MIG user guide ("Supported MIG Profiles") and what `nvidia-smi mig -lgipp` prints
for these GPUs; which PCI ids have which profiles is from the comments in mig-parted's `config-default.yaml`. A driver
may name the same slice by another size (GB200: 1g.23gb or 1g.24gb), so that a GPU has several names for one profile.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

LONG_FORM: Final = "MIG "
_NAME: Final = re.compile(r"(?:([1-9])c\.)?([1-9])g\.([1-9][0-9]{0,3})gb(\+me\.all|\+me|\+gfx|-me)?")


class Profile(NamedTuple):
    """A profile by its name: compute slices of the device and of its GPU instance, memory in GB, attribute (`+me`)."""

    compute: int
    slices: int
    memory_gb: int
    attribute: str = ""

    @property
    def instance(self) -> str:
        """The profile of the GPU instance: that of a device which has all of its compute slices."""
        return f"{self.slices}g.{self.memory_gb}gb{self.attribute}"

    def __str__(self) -> str:
        """Return the short name, as NVIDIA writes it."""
        return self.instance if self.compute == self.slices else f"{self.compute}c.{self.instance}"


class InstanceKind(NamedTuple):
    """How a GPU can have an instance: its slices of compute and memory, where it may begin, and how often it may be."""

    slices: int
    size: int
    starts: tuple[int, ...]
    most: int
    group: str = ""  # of profiles that share an engine: one of all of them


@dataclass(frozen=True)
class GpuModel:
    """GPUs that are divided alike; `devices` are PCI ids in lower-case hexadecimal, `kinds` are by profile."""

    name: str
    devices: frozenset[str]
    compute: int
    kinds: Mapping[str, InstanceKind]


def parse_profile(name: str) -> Profile | None:
    """Return what a name says, in its long form (`MIG 1g.10gb`) too; None for what is not the name of a profile."""
    match = _NAME.fullmatch(name.removeprefix(LONG_FORM))
    if match is None:
        return None
    compute, slices, memory, attribute = match.groups()
    profile = Profile(int(compute or slices), int(slices), int(memory), attribute or "")
    return profile if profile.compute <= profile.slices else None


def instances(devices: Iterable[tuple[Profile, int]]) -> dict[str, int]:
    """Return how many GPU instances of each profile MIG devices need; smaller ones share an instance (`1c.3g.40gb`)."""
    needed: dict[str, int] = {}
    for profile, count in devices:
        together = profile.slices // profile.compute
        needed[profile.instance] = needed.get(profile.instance, 0) - (-count // together)
    return needed


def can_hold(model: GpuModel, wanted: Mapping[str, int]) -> bool:
    """Tell whether a GPU has room for these GPU instances, wherever they lie."""
    if not all(name in model.kinds for name in wanted):
        return False
    kinds = [model.kinds[name] for name, count in wanted.items() for _ in range(min(count, model.compute + 1))]
    if sum(kind.slices for kind in kinds) > model.compute or not _within_limits(model, wanted):
        return False
    return _place(sorted(kinds, key=lambda kind: (-kind.size, len(kind.starts))), frozenset())


def _within_limits(model: GpuModel, wanted: Mapping[str, int]) -> bool:
    groups: dict[str, int] = {}
    for name, count in wanted.items():
        kind = model.kinds[name]
        if count > kind.most:
            return False
        if kind.group:
            groups[kind.group] = groups.get(kind.group, 0) + count
    return all(count <= 1 for count in groups.values())


def _place(kinds: Sequence[InstanceKind], taken: frozenset[int]) -> bool:
    if not kinds:
        return True
    first, *others = kinds
    for start in first.starts:
        place = frozenset(range(start, start + first.size))
        if not place & taken and _place(others, taken | place):
            return True
    return False


def models_of(device: str) -> tuple[GpuModel, ...]:
    """Return how GPUs of a PCI id are divided; nothing for an id that is not known."""
    return tuple(model for model in MODELS if device.lower() in model.devices)


def models_with(names: Iterable[str]) -> tuple[GpuModel, ...]:
    """Return the models that have all of these profiles."""
    wanted = set(names)
    return tuple(model for model in MODELS if wanted <= model.kinds.keys())


def _of_seven(name: str, devices: str, *sizes: str) -> GpuModel:
    """Return a GPU of seven compute slices and eight of memory.

    Sizes are the GB of `1g`, of the `1g` with twice its memory, of `2g`, `3g`, `4g` and `7g`; a driver's other names
    behind a slash.
    """
    kinds: dict[str, InstanceKind] = {}
    shapes = (
        (1, 1, tuple(range(7)), 7),
        (1, 2, (0, 2, 4, 6), 4),
        (2, 2, (0, 2, 4), 3),
        (3, 4, (0, 4), 2),
        (4, 4, (0,), 1),
        (7, 8, (0,), 1),
    )
    for (slices, size, starts, most), names in zip(shapes, sizes, strict=True):
        for memory in names.split("/"):
            kinds[f"{slices}g.{memory}gb"] = InstanceKind(slices, size, starts, most)
    for memory in sizes[0].split("/"):
        kinds[f"1g.{memory}gb+me"] = InstanceKind(1, 1, tuple(range(7)), 1, "me")
    return GpuModel(name, frozenset(devices.split()), 7, kinds)


def _of_few(name: str, devices: str, compute: int, kinds: Iterator[tuple[str, InstanceKind]]) -> GpuModel:
    return GpuModel(name, frozenset(devices.split()), compute, dict(kinds))


def _a30() -> Iterator[tuple[str, InstanceKind]]:
    yield "1g.6gb", InstanceKind(1, 1, (0, 1, 2, 3), 4)
    yield "1g.6gb+me", InstanceKind(1, 1, (0, 1, 2, 3), 1, "me")
    yield "2g.12gb", InstanceKind(2, 2, (0, 2), 2)
    yield "2g.12gb+me", InstanceKind(2, 2, (0, 2), 1, "me")
    yield "4g.24gb", InstanceKind(4, 4, (0,), 1)


def _rtx_pro(memory_gb: int, compute: int) -> Iterator[tuple[str, InstanceKind]]:
    """Yield the profiles of a GPU with graphics: each with and without it, and one instance may have all engines."""
    for slices in (1, 2, 4):
        if slices > compute:
            return
        name = f"{slices}g.{memory_gb * slices // compute}gb"
        starts, most = tuple(range(0, compute, slices)), compute // slices
        yield name, InstanceKind(slices, slices, starts, most)
        yield f"{name}+gfx", InstanceKind(slices, slices, starts, most)
        if slices < compute:
            yield f"{name}-me", InstanceKind(slices, slices, starts, most)
            yield f"{name}+me.all", InstanceKind(slices, slices, starts, 1, "me.all")
            yield f"{name}+me", InstanceKind(slices, slices, starts, 1, "me.all")


MODELS: Final = (
    _of_seven("A100 40GB, A800 40GB", "20b0 20b1 20f1 20f6", "5", "10", "10", "20", "20", "40"),
    _of_seven("A100 80GB, A800 80GB", "20b2 20b5 20f3 20f5", "10", "20", "20", "40", "40", "80"),
    _of_seven("H100 80GB, H800 80GB", "2330 2331 2322 2324", "10", "20", "20", "40", "40", "80"),
    _of_seven("H100 NVL, H800 NVL", "2321 233a", "12", "24", "24", "47", "47", "94"),
    _of_seven("H100 96GB, H20, GH200", "2342 233d 20b6 2329", "12", "24", "24", "48", "48", "96"),
    _of_seven("H200, H200 NVL", "2335 233b", "18", "35", "35", "71", "71", "141"),
    _of_seven("GH200 144GB", "2348", "18", "36", "36", "72", "72", "144"),
    _of_seven("B200", "2901", "23", "45", "45", "90", "90", "180"),
    _of_seven("GB200", "2941", "23/24", "47", "47", "93/95", "93/95", "186/189"),
    _of_seven("B300", "3182", "34", "67", "67", "135", "135", "269"),
    _of_seven("GB300", "31c2", "35", "70", "70", "139", "139", "278"),
    _of_few("A30", "20b7", 4, _a30()),
    _of_few("RTX PRO 6000 Blackwell", "2bb5", 4, _rtx_pro(96, 4)),
)
