"""Devices that nodes publish and that claims hold: counted from objects as a real API server has them."""

from __future__ import annotations

from typing import Any

import msgspec

from provision.cluster.kubernetes.nodes.reported import users_of
from provision.cluster.kubernetes.objects.claims import ResourceClaim, ResourceSlice
from provision.cluster.kubernetes.pods.devices import class_of, rooms_of
from provision.rollout.status.reported import CLASS, MIG_CLASS, Room, User
from tests.provision.cluster.samples import container, pod

MIG = "gpu-1-mig-3g40gb-9-4"


def published(
    *devices: str, node: str = "n1", generation: int = 1, driver: str = "gpu.nvidia.com", tainted: str = ""
) -> dict[str, Any]:
    """Return a slice of a node."""
    taint = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {
            "name": f"{node}-{driver}-x7k9p",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "controller": True, "uid": "u"}],
        },
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": name,
                    "attributes": {"type": {"string": "gpu"}, "uuid": {"string": f"GPU-{name}"}},
                    "capacity": {"memory": {"value": "80Gi"}},
                    **({"taints": [taint]} if name == tainted else {}),
                }
                for name in devices
            ],
        },
    }


def claim(
    name: str, *devices: str, node: str = "n1", driver: str = "gpu.nvidia.com", is_extended: bool = False, **more: Any
) -> dict[str, Any]:
    """Return a claim for so many devices of a class, which has them."""
    results = [{"request": "r", "driver": driver, "pool": node, "device": each, **more} for each in devices]
    exactly = {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": len(devices)}
    annotations = {"resource.kubernetes.io/extended-resource-claim": "true"} if is_extended else {}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        "status": {
            "allocation": {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": []}},
            "reservedFor": [{"resource": "pods", "name": "train", "uid": "u"}],
        },
    }


def rooms(slices: list[dict[str, Any]], *claims: dict[str, Any]) -> dict[str, dict[str, Room]]:
    return rooms_of(msgspec.convert(slices, list[ResourceSlice]), msgspec.convert(claims, list[ResourceClaim]))


def users(pods: list[Any], *claims: dict[str, Any]) -> tuple[User, ...]:
    return users_of(
        pods, {("default", each["metadata"]["name"]): msgspec.convert(each, ResourceClaim) for each in claims}
    )


def with_claim(name: str, of: str = "train", **spec: Any) -> Any:
    return pod(of, spec={"resourceClaims": [{"name": "gpus", "resourceClaimName": name}], **spec})


def test_gpus_and_mig_devices_are_of_two_classes_and_a_device_of_a_claim_is_held() -> None:
    found = rooms([published("gpu-0", "gpu-1", MIG), published("gpu-0", node="n2")], claim("a", "gpu-1", MIG))

    assert found == {"n1": {CLASS: Room(2, 2, 1), MIG_CLASS: Room(1, 1, 1)}, "n2": {CLASS: Room(1, 1, 0)}}


def test_the_class_of_a_device_is_known_by_its_name_in_either_driver() -> None:
    ours = ("gpu-6b1cd5c6-0000-4000-8000-000000000001", "mig-6b1cd5c6-0000-4000-8000-000000000002")

    assert [class_of(each) for each in (*ours, "gpu-0", MIG)] == [CLASS, MIG_CLASS] * 2


def test_the_newest_generation_of_a_pool_counts() -> None:
    assert rooms([published("gpu-0", "gpu-1"), published("gpu-0", generation=2)]) == {"n1": {CLASS: Room(1, 1, 0)}}


def test_a_node_hides_no_device_of_another_one_by_the_name_of_its_pool() -> None:
    thief = published("gpu-0", node="thief", generation=9)
    thief["spec"]["pool"]["name"] = "n1"

    assert rooms([published("gpu-0", "gpu-1"), thief])["n1"] == {CLASS: Room(2, 2, 0)}


def test_a_device_that_is_tainted_is_there_and_is_not_given() -> None:
    assert rooms([published("gpu-0", "gpu-1", tainted="gpu-1")]) == {"n1": {CLASS: Room(2, 1, 0)}}


PROFILES = {"1g": (1, 14, range(7)), "2g": (2, 28, (0, 2, 4)), "3g": (4, 42, (0, 4)), "7g": (8, 98, (0,))}
SLICES = {f"memory-slice-{index}": 1 for index in range(8)}


def drawing(counter_set: str, **counters: int) -> dict[str, Any]:
    found = {name.replace("_", "-"): {"value": str(amount)} for name, amount in counters.items()}
    return {"consumesCounters": [{"counterSet": counter_set, "counters": found}]}


def cut(gpu: str, *, whole: bool = False, tainted: str = "") -> list[dict[str, Any]]:
    """Return the slices of a GPU in MIG mode, each place of a profile of which is a device; of NVIDIA's, also whole."""
    places = [(f"{gpu}-mig-{name}-{start}", *kind[:2], start) for name, kind in PROFILES.items() for start in kind[2]]
    devices = published(*(name for name, *_ in places), *([gpu] if whole else ()), tainted=tainted)
    for device, (_, size, processors, start) in zip(devices["spec"]["devices"], places, strict=False):
        taken = {f"memory-slice-{index}": 1 for index in range(start, start + size)}
        device.update(drawing(f"{gpu}-set", multiprocessors=processors, **taken))
    if whole:
        devices["spec"]["devices"][-1] |= drawing(f"{gpu}-set", multiprocessors=98, **SLICES)
    sets = published()
    amounts = {name: {"value": str(amount)} for name, amount in {"multiprocessors": 98, **SLICES}.items()}
    sets["spec"]["sharedCounters"] = [{"name": f"{gpu}-set", "counters": amounts}]
    return [devices, sets]


def test_places_of_mig_devices_count_as_many_as_there_can_be_at_the_same_time() -> None:
    """All 13 places of a GPU counted as free devices."""
    both = [*cut("gpu-0"), *cut("gpu-1")]

    def room(*held: str) -> Room:
        return rooms(both, claim("a", *held))["n1"][MIG_CLASS]

    assert room() == Room(14, 14, 0, are_smallest=True)
    found = room("gpu-0-mig-3g-0")
    assert found == Room(14, 11, 1, are_smallest=True)
    assert found.free == 10, "three beside it, and seven on the other one"
    assert room("gpu-0-mig-7g-0").free == 7
    assert room("gpu-0-mig-7g-0", "gpu-1-mig-3g-4", "gpu-1-mig-1g-0").free == 3
    ill = [*cut("gpu-0", tainted="gpu-0-mig-1g-0"), *cut("gpu-1")]
    assert rooms(ill)["n1"][MIG_CLASS].free == 13


def test_a_gpu_of_which_a_mig_device_is_held_is_not_free_as_a_whole() -> None:
    both = [*cut("gpu-0", whole=True), *cut("gpu-1", whole=True)]

    assert rooms(both, claim("a", "gpu-0-mig-1g-0"))["n1"][CLASS] == Room(2, 1, 0)
    assert rooms(both, claim("a", "gpu-1"))["n1"][CLASS] == Room(2, 2, 1)
    assert rooms(both, claim("a", "gpu-1"))["n1"][MIG_CLASS].free == 7


def test_a_device_that_is_shared_counts_as_its_shares() -> None:
    one = published("gpu-0", "gpu-1")
    shared = {"allowMultipleAllocations": True, "capacity": {"shares": {"value": "4"}, "memory": {"value": "80Gi"}}}
    one["spec"]["devices"][0] |= shared
    share = {"shareID": "7d3c8e8e-3c0c-4b8e-9d80-0a4f7b7b5b11", "consumedCapacity": {"shares": "1"}}
    two = share | {"shareID": "0b5f0e5c-27f7-4f0e-a1f3-6d0c7e1a2c22", "consumedCapacity": {"shares": "2"}}
    claims = [claim("a", "gpu-0", **share), claim("b", "gpu-0", **two)]

    assert rooms([one], *claims) == {"n1": {CLASS: Room(5, 5, 3)}}
    assert users([with_claim("a", "a"), with_claim("b", "b")], *claims) == (
        User("default/a", {CLASS: 1}),
        User("default/b", {CLASS: 2}),
    )


def test_devices_of_another_driver_are_nobodys_gpus() -> None:
    nic = published("gpu-0", driver="dra.example.com")
    assert rooms([nic], claim("nic", "gpu-0", driver="dra.example.com")) == {}
    assert rooms([published("gpu-0"), nic], claim("nic", "gpu-0", driver="dra.example.com"))["n1"][CLASS].held == 0
    assert users([with_claim("nic")], claim("nic", "gpu-0", driver="dra.example.com")) == ()


def test_who_watches_all_gpus_holds_none() -> None:
    assert rooms([published("gpu-0")], claim("watch", "gpu-0", adminAccess=True))["n1"][CLASS].held == 0


def test_pods_hold_what_their_claims_have_and_one_claim_may_be_of_several() -> None:
    shared = claim("shared", "gpu-0", "gpu-1")

    assert users([with_claim("shared", "b"), with_claim("shared", "a"), with_claim("gone", "c")], shared) == (
        User("default/a", {CLASS: 2}),
        User("default/b", {CLASS: 2}),
    )
    assert rooms([published("gpu-0", "gpu-1", "gpu-2")], shared)["n1"][CLASS] == Room(3, 3, 2)


def test_an_extended_resource_that_is_had_by_a_claim_is_told_once() -> None:
    mapping = {"containerName": "main", "resourceName": "nvidia.com/gpu", "requestName": "container-0-request-0"}
    status = {
        "phase": "Running",
        "extendedResourceClaimStatus": {"resourceClaimName": "train-extended-x", "requestMappings": [mapping]},
    }
    asks = {"containers": [container(limits={"nvidia.com/gpu": "1", "rdma/hca": "1"})]}
    made = claim("train-extended-x", "gpu-0", is_extended=True)

    assert users([pod("train", spec=asks, status=status)], made) == (User("default/train", {CLASS: 1, "rdma/hca": 1}),)
    assert users([pod("train", spec=asks)], made) == (User("default/train", {"nvidia.com/gpu": 1, "rdma/hca": 1}),)
