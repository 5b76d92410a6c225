"""Counts devices of grapnel's and NVIDIA's DRA drivers by the class that claims ask for: published, and held. Pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

from provision.cluster.kubernetes.pods.gpu_pods import claim_names
from provision.declaration.spec.values.quantities import read_quantity
from provision.rollout.status.reported import CLASS, MIG_CLASS, Room

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from provision.cluster.kubernetes.objects.claims import Allocated, PublishedDevice, ResourceClaim, ResourceSlice
    from provision.cluster.kubernetes.objects.pods import AskedPod, Pod

    _Amounts = dict[tuple[str, str, str], int]  # by pool, set and counter
    Claimed = Mapping[tuple[str, str], ResourceClaim]  # by namespace and name

DRIVER: Final = "gpu.nvidia.com"
_MIG: Final = re.compile(r"mig-|.*-mig-")  # names of grapnel's driver (its UUID), and of NVIDIA's (gpu-0-mig-…)
_SHARES: Final = "shares"  # a capacity: of how many claims at a time a device is
_NUMBER: Final = re.compile(r"\d{1,6}")
_KEEPS_OFF: Final = frozenset({"NoSchedule", "NoExecute"})


def claims_of(pod: Pod | AskedPod, claims: Claimed) -> list[ResourceClaim]:
    """Return those of a pod's claims that are there."""
    keys = ((pod.metadata.namespace, name) for name in claim_names(pod))
    return [claims[key] for key in keys if key in claims]


def held_by(pod: Pod, claims: Claimed) -> Counter[str]:
    """Return how many devices a pod has by its claims."""
    held: Counter[str] = Counter()
    for each in (result for claim in claims_of(pod, claims) for result in claim.results if result.driver == DRIVER):
        held[class_of(each.device)] += _consumed(each)
    return held


def rooms_of(slices: Iterable[ResourceSlice], claims: Iterable[ResourceClaim]) -> dict[str, dict[str, Room]]:
    """Return what nodes publish, by their names: devices of the newest generation of each pool, which a node names.

    A device that several claims may have counts as its shares, and is held once by several pods of one claim; what an
    administrator's claim has is not held by it. Places of MIG devices that are made for claims are no devices yet.
    """
    newest: dict[tuple[str, str], int] = {}
    ours = [each.spec for each in slices if each.spec.driver == DRIVER and each.spec.node_name]
    for each in ours:
        pool = (each.node_name, each.pool.name)
        newest[pool] = max(each.pool.generation, newest.get(pool, 0))
    taken: Counter[tuple[str, str]] = Counter()
    for result in (each for claim in claims for each in claim.results):
        if result.driver == DRIVER and not result.admin_access:
            taken[result.pool, result.device] += _consumed(result)
    published: dict[str, list[_Offer]] = defaultdict(list)
    counters: dict[str, _Amounts] = defaultdict(dict)
    for each in ours:
        if each.pool.generation == newest[each.node_name, each.pool.name]:
            published[each.node_name] += (_offer(device, each.pool.name, taken) for device in each.devices)
            for one in each.shared_counters:
                amounts = {(each.pool.name, one.name, name): _number(of.value) for name, of in one.counters.items()}
                counters[each.node_name].update(amounts)
    return {
        node: {
            name: _room([each for each in offers if each.of_class == name], counters[node], offers) for name in names
        }
        for node, offers in published.items()
        if (names := dict.fromkeys(each.of_class for each in offers))
    }


class _Offer(NamedTuple):
    """A device of a node: how many claims may have it, how many have it, and what it takes of counters."""

    of_class: str
    shares: int
    held: int
    is_given: bool
    draws: _Amounts

    @property
    def weight(self) -> int:
        return sum(self.draws.values())


def _offer(device: PublishedDevice, pool: str, taken: Mapping[tuple[str, str], int]) -> _Offer:
    shares = _shares(device)
    draws = {
        (pool, each.counter_set, name): _number(amount.value)
        for each in device.consumes_counters
        for name, amount in each.counters.items()
    }
    is_given = all(taint.effect not in _KEEPS_OFF for taint in device.taints)
    return _Offer(class_of(device.name), shares, min(shares, taken.get((pool, device.name), 0)), is_given, draws)


def _room(offers: Sequence[_Offer], counters: _Amounts, every: Sequence[_Offer]) -> Room:
    """Return what a node has of one class. Of devices that exclude one another, as many as go together count."""
    held = [each for each in offers if each.held]
    left = dict(counters)
    for each in every:
        for counter, amount in each.draws.items() if each.held else ():
            left[counter] = left.get(counter, 0) - amount
    free = [each for each in offers if each.is_given and not each.held]
    has = _together(offers, counters)
    return Room(
        has,
        sum(each.shares for each in held if each.is_given) + _together(free, left),
        sum(each.held for each in offers),
        are_smallest=has < sum(each.shares for each in offers),
    )


def _together(offers: Iterable[_Offer], counters: _Amounts) -> int:
    """Return how many devices can be given at the same time: those that take least come first."""
    left, number = dict(counters), 0
    for each in sorted(offers, key=lambda offer: offer.weight):
        if all(left.get(counter, 0) >= amount for counter, amount in each.draws.items()):
            number += each.shares
            for counter, amount in each.draws.items():
                left[counter] -= amount
    return number


@lru_cache(maxsize=1024)
def _number(quantity: str) -> int:
    """Return a counter's amount, rounded up; nothing for what is none."""
    found = read_quantity(quantity)
    return ceil(found) if found is not None else 0


def class_of(device: str) -> str:
    """Return the DeviceClass that a device is of, by its name."""
    return MIG_CLASS if _MIG.match(device) else CLASS


def _shares(device: PublishedDevice) -> int:
    """Return how many claims may have a device at the same time."""
    value = device.capacity[_SHARES].value if _SHARES in device.capacity else ""
    return int(value) if device.allow_multiple_allocations and _NUMBER.fullmatch(value) else 1


def _consumed(result: Allocated) -> int:
    value = result.consumed_capacity.get(_SHARES, "")
    return int(value) if _NUMBER.fullmatch(value) else 1
