"""Why a claim has its devices or none: said from what was read of it, of classes, slices and other claims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from provision.cluster.kubernetes.nodes.claim_reasons import ClaimFacts, explain_claim
from provision.cluster.kubernetes.objects.claims import DescribedSlice, DeviceClass, ResourceClaim
from provision.cluster.kubernetes.objects.pods import AskedPod
from provision.rollout.status.reported import CLASS
from tests.provision.cluster.test_devices_by_claims import claim as allocated
from tests.provision.cluster.test_devices_by_claims import published

if TYPE_CHECKING:
    from provision.cluster.kubernetes.nodes.pod_reasons import PodReasons

OF_GPUS = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
CLASSES = {
    CLASS: msgspec.convert(
        {"metadata": {"name": CLASS}, "spec": {"selectors": [{"cel": {"expression": OF_GPUS}}]}}, DeviceClass
    )
}
HOPPER = "device.attributes['gpu.nvidia.com'].architecture == 'Hopper'"
ATTRIBUTES = {"architecture": {"string": "Ampere"}, "productName": {"string": "A100"}}


def exactly(**more: Any) -> dict[str, Any]:
    return {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": 1, **more}


def where(expression: str) -> dict[str, Any]:
    return exactly(selectors=[{"cel": {"expression": expression}}])


def claim(*requests: dict[str, Any], constraints: list[dict[str, Any]] | None = None, **more: Any) -> ResourceClaim:
    """Return a claim of team/train that has nothing; requests are r0, r1, ..."""
    rows = [each if "name" in each else {"name": f"r{number}", "exactly": each} for number, each in enumerate(requests)]
    devices = {"requests": rows, "constraints": constraints or [], **more}
    return msgspec.convert(
        {"metadata": {"name": "train", "namespace": "team"}, "spec": {"devices": devices}}, ResourceClaim
    )


def node(name: str = "n1", *devices: str, **more: Any) -> dict[str, Any]:
    """Return a node's slice; ``more`` is by the names of devices what they have besides."""
    made = published(*(devices or ("gpu-0",)), node=name)
    for each in made["spec"]["devices"]:
        each["attributes"] |= ATTRIBUTES
        extra = more.get(each["name"].replace("-", "_"), {})
        each["attributes"] |= extra.pop("attributes", {})
        each.update(extra)
    return made


def waiting(**status: Any) -> AskedPod:
    whole = {
        "metadata": {"name": "train-0", "namespace": "team"},
        "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "train"}]},
        "status": {"phase": "Pending", **status},
    }
    return msgspec.convert(whole, AskedPod)


def explained(
    asked: ResourceClaim, *slices: dict[str, Any], others: list[dict[str, Any]] | None = None, **more: Any
) -> PodReasons:
    facts = {
        "claim": asked,
        "pods": (waiting(),),
        "classes": CLASSES,
        "slices": tuple(msgspec.convert(list(slices), list[DescribedSlice])),
        "claims": tuple(msgspec.convert(others or [], list[ResourceClaim])),
        **more,
    }
    return explain_claim(ClaimFacts(**facts))


def said(answer: PodReasons, label: str) -> list[str]:
    return [text for each, text in answer.facts if each == label]


TAINT = [{"key": "gpu.nvidia.com/gpu-lost", "effect": "NoSchedule"}]
SHARED = {
    "allowMultipleAllocations": True,
    "capacity": {
        "shares": {
            "value": "4",
            "requestPolicy": {"default": "1", "validRange": {"min": "1", "max": "2", "step": "1"}},
        },
        "memory": {"value": "80Gi", "requestPolicy": {"default": "0", "validValues": ["0"]}},
    },
}


@pytest.mark.parametrize(
    ("asked", "slices", "others", "why"),
    [
        pytest.param(
            where(HOPPER),
            [node()],
            [],
            f"n1: gpu-0: the claim wants `{HOPPER}`, and architecture is Ampere",
            id="another attribute",
        ),
        pytest.param(
            where(f"{HOPPER} || device.attributes['gpu.nvidia.com'].brand == 'Tesla'"),
            [node()],
            [],
            f"n1: gpu-0: the claim wants `{HOPPER} || device.attributes['gpu.nvidia.com'].brand == 'Tesla'`, "
            "and it has no brand: the scheduler gives up there, for the whole claim",
            id="an attribute that no device has",
        ),
        pytest.param(
            where("device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('141Gi')) >= 0"),
            [node()],
            [],
            "n1: gpu-0: the claim wants `device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('141Gi')) >= 0`, "
            "and memory is 80Gi",
            id="less memory",
        ),
        pytest.param(
            exactly(capacity={"requests": {"memory": "90e9"}}),
            [node()],
            [],
            "n1: gpu-0: 80Gi of its 80Gi memory are left, and 87890625Ki are asked for",
            id="less memory than an amount in another form",
        ),
        pytest.param(
            exactly(),
            [node()],
            [allocated("other", "gpu-0")],
            "n1: gpu-0: held by default/other",
            id="held by another claim",
        ),
        pytest.param(
            exactly(count=2),
            [node("n1", "gpu-0", "gpu-1", "gpu-2")],
            [allocated("a", "gpu-0"), allocated("b", "gpu-1")],
            "n1: 1 of 2 that are needed; gpu-0: held by default/a; gpu-1: held by default/b",
            id="too few are free",
        ),
        pytest.param(
            exactly(allocationMode="All"),
            [node("n1", "gpu-0", "gpu-1")],
            [allocated("a", "gpu-0")],
            "n1: 1 of 2 that are needed; gpu-0: held by default/a",
            id="all, and one is held",
        ),
        pytest.param(
            exactly(),
            [node(gpu_0={"taints": TAINT})],
            [],
            "n1: gpu-0: taint gpu.nvidia.com/gpu-lost:NoSchedule is not tolerated",
            id="a taint",
        ),
        pytest.param(
            exactly(capacity={"requests": {"shares": "2"}}),
            [node(gpu_0=SHARED)],
            [
                allocated("a", "gpu-0", consumedCapacity={"shares": "2"}),
                allocated("b", "gpu-0", consumedCapacity={"shares": "1"}),
            ],
            "n1: gpu-0: 1 of its 4 shares is left, by default/a, default/b, and 2 are asked for",
            id="too few shares are left",
        ),
        pytest.param(
            exactly(capacity={"requests": {"memory": "8Gi"}}),
            [node(gpu_0=SHARED)],
            [],
            "n1: gpu-0: 8Gi of its memory is not given to one claim",
            id="what is not divided",
        ),
        pytest.param(
            where("device.attributes['gpu.nvidia.com'].architecture.matches('^Hop')"),
            [node()],
            [],
            "n1: gpu-0: the claim wants `device.attributes['gpu.nvidia.com'].architecture.matches('^Hop')`, "
            "which is not judged here",
            id="an expression that is not judged",
        ),
    ],
)
def test_what_keeps_each_device_out(
    asked: dict[str, Any], slices: list[dict[str, Any]], others: list[dict[str, Any]], why: str
) -> None:
    answer = explained(claim(asked), *slices, others=others)

    assert said(answer, "node") == [why]
    assert said(answer, "request")[0].startswith("r0: no node")


def test_nodes_of_which_the_same_is_so_are_one_line_and_devices_of_other_classes_none() -> None:
    nic = published("eth0", node="n1", driver="dra.example.com")

    answer = explained(claim(where(HOPPER)), node("n1"), node("n2"), node("n3"), nic)

    assert said(answer, "node") == [f"n1 to n3: 1 device each: the claim wants `{HOPPER}`, and architecture is Ampere"]


def test_where_a_device_fits_it_is_said_that_nothing_is_in_the_way() -> None:
    answer = explained(claim(exactly()), node("n1"), node("n2", gpu_0={"taints": TAINT}))

    assert said(answer, "node") == ["n1: devices fit: nothing that is looked at here is in the way"]
    assert not said(answer, "request")
    assert "`grapnel explain pod team/train-0` says what else is in its way" in answer.todo


def test_a_taint_that_is_tolerated_and_who_only_watches_are_let_in() -> None:
    tolerant = exactly(tolerations=[{"key": "gpu.nvidia.com/gpu-lost", "operator": "Exists"}])
    assert said(explained(claim(tolerant), node(gpu_0={"taints": TAINT})), "node")[0].startswith("n1: devices fit")
    watching = claim(exactly(adminAccess=True))
    assert said(explained(watching, node(), others=[allocated("other", "gpu-0")]), "node")[0].startswith(
        "n1: devices fit"
    )


@pytest.mark.parametrize(
    ("constraint", "why"),
    [
        pytest.param(
            {"matchAttribute": "resource.kubernetes.io/pcieRoot"},
            "n1: no devices that fit have the same resource.kubernetes.io/pcieRoot (gpu-0: a, gpu-1: b)",
            id="the same",
        ),
        pytest.param(
            {"distinctAttribute": "gpu.nvidia.com/productName", "requests": ["r0"]},
            "n1: 2 devices with a gpu.nvidia.com/productName each are needed (gpu-0: A100, gpu-1: A100)",
            id="another",
        ),
        pytest.param({"matchAttribute": "gpu.nvidia.com/productName"}, "n1: devices fit", id="met"),
    ],
)
def test_devices_that_do_not_go_together(constraint: dict[str, Any], why: str) -> None:
    roots = {f"gpu_{n}": {"attributes": {"resource.kubernetes.io/pcieRoot": {"string": x}}} for n, x in enumerate("ab")}

    answer = explained(claim(exactly(count=2), constraints=[constraint]), node("n1", "gpu-0", "gpu-1", **roots))

    assert said(answer, "node")[0].startswith(why)


@pytest.mark.parametrize("kind", ["matchAttribute", "distinctAttribute"])
@pytest.mark.parametrize("name", ["gpu.nvidia.com/fabrics", "resource.kubernetes.io/pcieRoot"])
def test_of_an_attribute_in_an_unknown_form_it_is_not_said_that_devices_do_not_go_together(
    kind: str, name: str
) -> None:
    key = name.removeprefix("gpu.nvidia.com/")
    lists = {f"gpu_{n}": {"attributes": {key: {"strings": ["a", "b"]}}} for n in range(2)}

    answer = explained(claim(exactly(count=2), constraints=[{kind: name}]), node("n1", "gpu-0", "gpu-1", **lists))

    assert said(answer, "node")[0].startswith("n1: devices fit")


def test_requests_that_want_the_same_device_are_told_so() -> None:
    answer = explained(claim(exactly(), exactly()), node("n1"))
    assert said(answer, "node") == ["n1: all requests together need 2 devices, and 1 fit"]
    apart = claim(where("device.attributes['gpu.nvidia.com'].architecture == 'Ampere'"), where(HOPPER))
    other = node("n2", gpu_0={"attributes": {"architecture": {"string": "Hopper"}}})
    assert said(explained(apart, node("n1"), other), "node") == ["none has devices for all requests at the same time"]


def test_an_alternative_that_fits_is_enough() -> None:
    first = {"name": "hopper", **where(HOPPER)}
    either = {"name": "gpu", "firstAvailable": [first, {"name": "any", **exactly()}]}

    answer = explained(claim(either), node("n1"))

    assert said(answer, "asks") == [
        f"request gpu/hopper: 1 gpu.nvidia.com, where `{HOPPER}`",
        "or request gpu/any: 1 gpu.nvidia.com",
    ]
    assert said(answer, "node")[-1] == "n1: devices fit: nothing that is looked at here is in the way"


def partitioned(name: str, *devices: str, memory_slices: str = "1") -> list[dict[str, Any]]:
    """Return the slices of a node, in a pool that is called n1, whose devices take one slice of memory each."""
    amount = {"memory-slice-0": {"value": memory_slices}}
    draws = {"consumesCounters": [{"counterSet": "gpu-0-counter-set", "counters": {"memory-slice-0": {"value": "1"}}}]}
    sets = published(node=name)
    sets["spec"] |= {"devices": [], "sharedCounters": [{"name": "gpu-0-counter-set", "counters": amount}]}
    parts = node(name, *devices, **{each.replace("-", "_"): dict(draws) for each in devices})
    for each in (sets, parts):
        each["spec"]["pool"] |= {"name": "n1", "resourceSliceCount": 2}
    return [sets, parts]


def test_counters_that_others_have_taken_are_named_with_who_has_them() -> None:
    answer = explained(claim(exactly()), *partitioned("n1", "gpu-0", "gpu-1"), others=[allocated("part", "gpu-0")])

    taken = "counter memory-slice-0 of gpu-0-counter-set has 0 left, by default/part, and it takes 1"
    assert said(answer, "node") == [f"n1: gpu-0: held by default/part; gpu-1: {taken}"]


def test_counters_of_another_node_do_not_count_whatever_it_calls_its_pool() -> None:
    """The last set of counters in a pool of one name was that of all nodes."""
    slices = [*partitioned("n1", "gpu-0", "gpu-1"), *partitioned("n2", "gpu-2", memory_slices="5")]

    answer = explained(claim(exactly(count=2)), *slices, others=[allocated("part", "gpu-0")])

    taken = "counter memory-slice-0 of gpu-0-counter-set has 0 left, by default/part, and it takes 1"
    n1 = f"n1: 0 of 2 that are needed; gpu-0: held by default/part; gpu-1: {taken}"
    assert said(answer, "node") == ["n2: 1 of 2 that are needed", n1]


def test_a_pool_without_all_of_its_slices_gives_nothing_and_old_slices_do_not_count() -> None:
    torn = node("n1")
    torn["spec"]["pool"]["resourceSliceCount"] = 2
    answer = explained(claim(exactly()), torn)
    assert said(answer, "pool") == ["pool n1 of gpu.nvidia.com has 1 of 2 slices: nothing is given of it"]
    old, new = node("n1"), node("n1", "gpu-1")
    new["spec"]["pool"]["generation"] = 2
    answer = explained(claim(exactly()), old, new, others=[allocated("other", "gpu-1")])
    assert said(answer, "node") == ["n1: gpu-1: held by default/other"]


@pytest.mark.parametrize(
    ("name", "file"), [(CLASS, "deviceclasses.yaml"), ("rdma-shared.devices.grapnel.dev", "otherclasses.yaml")]
)
def test_a_class_that_is_not_there_is_told_with_what_makes_it(name: str, file: str) -> None:
    answer = explained(claim(exactly(deviceClassName=name)), node(), classes={name: None})

    assert said(answer, "class") == [f"DeviceClass {name} is not there: nothing is given"]
    assert any(f"deploy/dra/{file}" in each for each in answer.todo)


def test_what_could_not_be_read_is_not_judged() -> None:
    answer = explained(
        claim(exactly()), node(), classes={}, claims=None, unread=("DeviceClasses: eve may not list them",)
    )
    assert said(answer, "node") == [f"n1: gpu-0: what class {CLASS} wants could not be read"]
    assert said(answer, "request") == ["r0: no node is known to have enough devices that fit"]
    assert "DeviceClasses: eve may not list them" in said(answer, "not known")
    assert not said(explained(claim(exactly()), slices=None), "request")


def test_a_claim_that_no_pod_uses_waits_for_one() -> None:
    answer = explained(claim(exactly()), node(), pods=())

    assert answer.head == "team/train: has no device, and no pod that waits for it"
    assert said(answer, "pod")[0].startswith("none uses it")


@pytest.mark.parametrize(
    ("of", "config", "told"),
    [
        pytest.param("compute-domain-default-channel.nvidia.com", [], True, id="a channel"),
        pytest.param(
            CLASS, [{"opaque": {"driver": "compute-domain.nvidia.com", "parameters": {}}}], True, id="what it is told"
        ),
        pytest.param(CLASS, [], False, id="a GPU"),
    ],
)
def test_compute_domains_are_named_as_not_served(of: str, config: list[dict[str, Any]], *, told: bool) -> None:
    asked = claim(exactly(deviceClassName=of), config=config)

    answer = explained(asked, node())

    assert bool(said(answer, "not served")) is told
    assert any("docs/dra" in each for each in answer.todo) is told
    beside = published("channel-0", driver="compute-domain.nvidia.com")
    assert not said(explained(asked, node(), beside), "not served")


def has(**more: Any) -> ResourceClaim:
    given = allocated("train", "gpu-0")
    given["metadata"]["namespace"] = "team"
    given["status"] |= {"reservedFor": [{"resource": "pods", "name": "train-0", "uid": "u"}], **more}
    return msgspec.convert(given, ResourceClaim)


def test_who_has_what_by_a_claim() -> None:
    running = msgspec.structs.replace(
        waiting(phase="Running"), spec=msgspec.convert({"nodeName": "n1"}, type(waiting().spec))
    )
    ready = {"type": "Ready", "status": "True", "reason": "Prepared"}
    told = {"devices": [{"driver": CLASS, "pool": "n1", "device": "gpu-0", "conditions": [ready]}]}

    answer = explained(has(**told), node(gpu_0={"taints": TAINT}), pods=(running,))

    assert answer.head == "team/train: has its devices"
    assert said(answer, "has") == ["request r: gpu-0 of n1 (A100)"]
    assert said(answer, "device") == ["gpu-0 has the taint gpu.nvidia.com/gpu-lost:NoSchedule"]
    assert said(answer, "driver") == ["gpu.nvidia.com of gpu-0: Ready: True: Prepared"]
    assert said(answer, "pod") == ["train-0 runs on n1: the claim is prepared there"]


def test_what_is_not_published_any_more_and_pods_that_do_not_run_are_said() -> None:
    answer = explained(has(), node("n1", "gpu-1"), warnings=("FailedPrepareDynamicResources: no GPU",))

    assert said(answer, "device") == ["gpu-0 of n1 is not published any more"]
    assert said(answer, "event") == ["FailedPrepareDynamicResources: no GPU"]
    assert said(answer, "pod")[0].startswith("train-0 does not run yet")
    assert said(explained(has(reservedFor=[]), node()), "reserved")[0].startswith("for no pod")
