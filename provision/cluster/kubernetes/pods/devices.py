"""Counts devices of grapnel's and NVIDIA's DRA drivers by the class that claims ask for: published, and held. Pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from provision.cluster.kubernetes.pods.gpu_pods import claim_names
from provision.rollout.status.reported import CLASS, MIG_CLASS, Room

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from provision.cluster.kubernetes.objects.claims import Allocated, PublishedDevice, ResourceClaim, ResourceSlice
    from provision.cluster.kubernetes.objects.pods import AskedPod, Pod

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
    administrator's claim has is not held by it.
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
    counts: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for each in ours:
        for device in each.devices if each.pool.generation == newest[each.node_name, each.pool.name] else ():
            count = counts[each.node_name][class_of(device.name)]
            shares = _shares(device)
            count["has"] += shares
            count["gives"] += shares if all(taint.effect not in _KEEPS_OFF for taint in device.taints) else 0
            count["held"] += min(shares, taken[each.pool.name, device.name])
    return {
        node: {name: Room(count["has"], count["gives"], count["held"]) for name, count in classes.items()}
        for node, classes in counts.items()
    }


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
