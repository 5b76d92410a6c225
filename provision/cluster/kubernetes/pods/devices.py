"""Counts devices of grapnel's and NVIDIA's DRA drivers by the class that claims ask for: published, and held. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from provision.cluster.kubernetes.pods.gpu_pods import claim_names
from provision.rollout.status.reported import CLASS, MIG_CLASS, Room

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from provision.cluster.kubernetes.objects.claims import ResourceClaim, ResourceSlice
    from provision.cluster.kubernetes.objects.pods import AskedPod, Pod

    Claimed = Mapping[tuple[str, str], ResourceClaim]  # by namespace and name

DRIVER: Final = "gpu.nvidia.com"
_MIG: Final = "-mig-"  # in names of devices, which both drivers form alike
_KEEPS_OFF: Final = frozenset({"NoSchedule", "NoExecute"})


def claims_of(pod: Pod | AskedPod, claims: Claimed) -> list[ResourceClaim]:
    """Return those of a pod's claims that are there."""
    keys = ((pod.metadata.namespace, name) for name in claim_names(pod))
    return [claims[key] for key in keys if key in claims]


def held_by(pod: Pod, claims: Claimed) -> Counter[str]:
    """Return how many devices a pod has by its claims."""
    results = (each for claim in claims_of(pod, claims) for each in claim.results if each.driver == DRIVER)
    return Counter(class_of(each.device) for each in results)


def rooms_of(slices: Iterable[ResourceSlice], claims: Iterable[ResourceClaim]) -> dict[str, dict[str, Room]]:
    """Return what nodes publish, by their names: devices of the newest generation of each pool, which a node names.

    A device that several pods have by one claim is held once; what an administrator's claim has is not held by it.
    """
    newest: dict[tuple[str, str], int] = {}
    ours = [each.spec for each in slices if each.spec.driver == DRIVER and each.spec.node_name]
    for each in ours:
        pool = (each.node_name, each.pool.name)
        newest[pool] = max(each.pool.generation, newest.get(pool, 0))
    taken = {
        (each.pool, each.device)
        for claim in claims
        for each in claim.results
        if each.driver == DRIVER and not each.admin_access
    }
    counts: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for each in ours:
        for device in each.devices if each.pool.generation == newest[each.node_name, each.pool.name] else ():
            count = counts[each.node_name][class_of(device.name)]
            count["has"] += 1
            count["gives"] += all(taint.effect not in _KEEPS_OFF for taint in device.taints)
            count["held"] += (each.pool.name, device.name) in taken
    return {
        node: {name: Room(count["has"], count["gives"], count["held"]) for name, count in classes.items()}
        for node, classes in counts.items()
    }


def class_of(device: str) -> str:
    """Return the DeviceClass that a device is of, by its name."""
    return MIG_CLASS if _MIG in device else CLASS
