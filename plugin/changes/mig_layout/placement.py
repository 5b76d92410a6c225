"""Finds where the wanted GPU instances can lie on a GPU: an arrangement that keeps what is there. Pure.

The driver offers each profile a few places in the GPU's memory slices, and no two instances overlap. The search is
exhaustive: a GPU has eight slices, so that a legal arrangement is found wherever there is one.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from plugin.changes.mig_layout.model import Instance

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plugin.changes.mig_layout.model import DeviceProfile
    from plugin.driver.mig_instances import InstanceProfile

_KEPT, _COMPLETED, _MADE = 0, 1, 2  # what an instance costs


class Wanted(NamedTuple):
    """A GPU instance that is wanted, wherever it lies; `compute` with the largest first."""

    profile: InstanceProfile
    compute: tuple[int, ...]


def group(devices: Sequence[DeviceProfile], profiles: Sequence[InstanceProfile]) -> tuple[Wanted, ...]:
    """Return the GPU instances that have room for these devices; raises ValueError for a profile that is not known.

    Devices of one GPU instance's profile share instances as far as they fit, as with mig-parted.
    """
    known = {profile.name: profile for profile in profiles}
    found: list[Wanted] = []
    for device in sorted(devices, key=lambda each: (each.instance, -each.compute)):
        profile = known.get(device.instance)
        if profile is None:
            has = ", ".join(sorted(known)) or "none"
            raise ValueError(f"it has no mig profile {device.instance}: it has {has}")
        position = next((at for at, each in enumerate(found) if _has_room(each, profile, device.compute)), None)
        if position is None:
            found.append(Wanted(profile, (device.compute,)))
        else:
            found[position] = Wanted(profile, (*found[position].compute, device.compute))
    return tuple(found)


def _has_room(wanted: Wanted, profile: InstanceProfile, compute: int) -> bool:
    return wanted.profile is profile and sum(wanted.compute) + compute <= profile.slices


def missing(compute: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...] | None:
    """Return the compute instances that an instance lacks, None where it has others than are wanted."""
    has, wants = Counter(compute), Counter(wanted)
    return None if has - wants else tuple(sorted((wants - has).elements(), reverse=True))


class Placed(NamedTuple):
    """An instance of an arrangement, and the compute instances that are to be made in it."""

    instance: Instance
    lacks: tuple[int, ...] = ()


def arrange(
    wanted: Sequence[Wanted], present: Sequence[Instance], *, ignores_holders: bool = False
) -> tuple[Placed, ...] | None:
    """Return a legal arrangement with as much of what is present as possible, or None.

    Instances that are in use keep their places in it; None where no arrangement leaves them there.
    """
    if any(count > profile.most for profile, count in Counter(each.profile for each in wanted).items()):
        return None
    used = [] if ignores_holders else [each for each in present if each.holders]
    rest = _without(wanted, used)
    if rest is None:
        return None
    taken = sum(_mask(each.start, each.size) for each in used)
    found = _Search(rest, present).best(0, taken, 0)
    return None if found is None else tuple(sorted((*map(Placed, used), *found[1])))


def _without(wanted: Sequence[Wanted], used: Sequence[Instance]) -> list[Wanted] | None:
    """Return what is wanted besides the instances that have to stay, None where one of those is not wanted."""
    rest = sorted(wanted, key=_largest_first)
    for instance in used:
        match = next((each for each in rest if _fits(each, instance)), None)
        if match is None:
            return None
        rest.remove(match)
    return rest


def _largest_first(wanted: Wanted) -> tuple[int, str, tuple[int, ...]]:
    size = max((size for _, size in wanted.profile.places), default=0)
    return -size, wanted.profile.name, wanted.compute


def _fits(wanted: Wanted, instance: Instance) -> bool:
    return wanted.profile.name == instance.profile and missing(instance.compute, wanted.compute) == ()


def _mask(start: int, size: int) -> int:
    return ((1 << size) - 1) << start


class _Search:
    """One GPU. Equal instances are placed from left to right; what was found for taken slices is remembered."""

    def __init__(self, wanted: Sequence[Wanted], present: Sequence[Instance]) -> None:
        self._wanted = wanted
        self._present = {(each.profile, each.start): each for each in present}
        self.best = lru_cache(maxsize=None)(self._best)

    def _best(self, number: int, taken: int, least: int) -> tuple[int, tuple[Placed, ...]] | None:
        """Return the cheapest places of the instances from this number on, and what they cost."""
        if number == len(self._wanted):
            return 0, ()
        best: tuple[int, tuple[Placed, ...]] | None = None
        for cost, placed in self._choices(self._wanted[number], taken, least):
            instance = placed.instance
            is_repeated = self._wanted[number : number + 2].count(self._wanted[number]) > 1
            rest = self.best(
                number + 1, taken | _mask(instance.start, instance.size), instance.start + 1 if is_repeated else 0
            )
            if rest is not None and (best is None or cost + rest[0] < best[0]):
                best = cost + rest[0], (placed, *rest[1])
        return best

    def _choices(self, wanted: Wanted, taken: int, least: int) -> Iterator[tuple[int, Placed]]:
        for start, size in wanted.profile.places:
            if start < least or taken & _mask(start, size):
                continue
            there = self._present.get((wanted.profile.name, start))
            lacks = None if there is None else missing(there.compute, wanted.compute)
            if there is not None and lacks is not None:
                yield (_COMPLETED if lacks else _KEPT), Placed(there, lacks)
            else:
                yield _MADE, Placed(Instance(start, size, wanted.profile.name), wanted.compute)
