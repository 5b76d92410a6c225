"""Pods with claims are ended by a taint on the GPUs of their node, where that is declared and served."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from provision.cluster.kubernetes.api.client import Api
from provision.cluster.kubernetes.cluster import KubernetesCluster
from provision.cluster.kubernetes.objects.claims import ResourceClaim
from provision.cluster.kubernetes.objects.pods import Pod
from provision.cluster.kubernetes.pods.evictions.device_taints import DeviceTaints, name_of, take_back
from provision.cluster.kubernetes.pods.gpu_pods import FOR_EVER, Given, given_of, node_pods, pod_use
from provision.cluster.kubernetes.pods.pod_rules import PodRules, pod_rules
from provision.cluster.machine import Machine
from provision.rollout.errors import HeldError
from provision.rollout.interface.cluster import EvictionOutcome
from provision.rollout.model import GpuPod
from tests.provision.cluster.fakes import Clock, answer, refusal
from tests.provision.samples import make_stack

if TYPE_CHECKING:
    from provision.cluster.kubernetes.api.exchange import ApiResponse as Answered
    from provision.cluster.kubernetes.api.exchange import Request

BASE = "/apis/resource.k8s.io/v1"
RULES = f"{BASE}/devicetaintrules"
POD = GpuPod(
    namespace="ml", name="web", uid="u1", is_terminating=False, is_mirror_or_daemon=False, node="n1", is_by_claims=True
)


POD_OF_CLAIMS = msgspec.convert(
    {
        "metadata": {"name": "web", "namespace": "ml", "uid": "u1"},
        "spec": {"nodeName": "n1", "resourceClaims": [{"name": "gpu", "resourceClaimName": "web-gpu"}]},
    },
    Pod,
)
WEB = {"matchLabels": {"app": "web"}}


class Server:
    """Serves DeviceTaintRules, or an older version without them."""

    name = "cluster x"

    def __init__(self, *, is_served: bool = True) -> None:
        self.stored: dict[str, dict[str, Any]] = {}
        self.sent: list[str] = []
        self.is_served = is_served

    def send(self, sent: Request) -> Answered:
        self.sent.append(f"{sent.method} {sent.path}")
        if sent.path == BASE:
            names = ["resourceclaims", *(["devicetaintrules"] if self.is_served else [])]
            return answer(200, {"resources": [{"name": name} for name in names]})
        if not self.is_served:
            return refusal(404)
        name = sent.path.rpartition("/")[2]
        if sent.method == "POST":
            assert sent.body is not None
            name = sent.body["metadata"]["name"]
            if name in self.stored:
                return refusal(409)
            self.stored[name] = sent.body
            return answer(201, sent.body)
        if sent.method == "DELETE":
            return refusal(404) if self.stored.pop(name, None) is None else answer(200, {})
        return answer(200, {"items": list(self.stored.values())})


def taints(server: Server, *, is_used: bool = True, clock: Clock | None = None) -> DeviceTaints:
    clock = clock or Clock()
    api = Api(server, sleep=clock.sleep, clock=clock)  # type: ignore[arg-type] # no watch is asked for
    return DeviceTaints(api, api, is_used=is_used, clock=clock)


def test_all_gpus_of_the_node_are_tainted_once_until_it_is_in_service_again() -> None:
    server = Server()
    made = taints(server)

    answers = [made.ask(POD), made.ask(replace(POD, name="web-2", uid="u2")), made.ask(POD)]

    assert [each.outcome for each in answers if each is not None] == [EvictionOutcome.BLOCKED] * 3
    (rule,) = server.stored.values()
    assert rule["spec"] == {
        "deviceSelector": {"driver": "gpu.nvidia.com", "pool": "n1"},
        "taint": {"key": "grapnel.dev/upgrade", "effect": "NoExecute"},
    }
    assert server.sent.count(f"POST {RULES}") == 1
    made.end("n1")
    assert server.stored == {}
    made.end("n1")  # of a process that was killed just there


def test_a_process_that_follows_finds_the_rule_and_takes_back_those_of_nodes_in_service() -> None:
    server = Server()
    taints(server).ask(POD)
    taints(server).ask(replace(POD, node="n2"))
    after = taints(server)
    after.settle(lambda node: node == "n1")
    assert list(server.stored) == [name_of("n1")]
    answered = after.ask(POD)
    assert answered is not None
    assert list(server.stored) == [name_of("n1")]


def test_a_rule_that_is_there_goes_with_its_node_s_upgrade_also_where_it_is_declared_no_longer() -> None:
    server = Server()
    taints(server).ask(POD)
    taints(server).ask(replace(POD, node="n2"))
    after = taints(server, is_used=False)

    after.settle(lambda node: node == "n1")
    assert list(server.stored) == [name_of("n1")]
    assert after.ask(POD) is None, "pods are evicted by now"
    after.end("n1")
    assert server.stored == {}


def test_a_rule_that_somebody_deletes_is_made_again() -> None:
    server, clock = Server(), Clock()
    made = taints(server, clock=clock)
    made.ask(POD)
    server.stored.clear()
    clock.sleep(60.0)
    made.ask(POD)
    assert list(server.stored) == [name_of("n1")]


def test_a_process_that_is_kept_out_takes_back_no_rule_of_the_one_at_work() -> None:
    """It has seen the node before that one has taken it out of service."""

    class Held(Server):
        def send(self, sent: Request) -> Answered:
            if sent.path == "/api/v1/nodes":
                return answer(200, {"items": [{"metadata": {"name": "n1", "uid": "u", "resourceVersion": "7"}}]})
            if sent.path.endswith("/selfsubjectaccessreviews"):
                return answer(201, {"status": {"allowed": True}})
            if "/leases" in sent.path:
                now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
                spec = {"holderIdentity": "ann", "leaseDurationSeconds": 60, "renewTime": now, "acquireTime": now}
                return answer(200, {"metadata": {"name": "l", "resourceVersion": "1"}, "spec": spec})
            return super().send(sent)

    server, clock = Held(), Clock()
    api = Api(server, sleep=clock.sleep, clock=clock)  # type: ignore[arg-type] # no watch is asked for
    other = KubernetesCluster(
        api,
        rules=PodRules(resources=frozenset({"nvidia.com/gpu"}), taints=True),
        machines={"n1": Machine(hostname="n1")},
    )
    other.observe(["n1"])
    taints(server).ask(POD)

    with pytest.raises(HeldError), other.lease("ben"):
        pass
    assert list(server.stored) == [name_of("n1")]


def test_what_has_no_claim_and_where_none_is_served_or_declared_pods_are_evicted() -> None:
    assert taints(Server()).ask(replace(POD, is_by_claims=False)) is None
    assert taints(Server(), is_used=False).ask(POD) is None
    old = Server(is_served=False)
    made = taints(old)
    assert [made.ask(POD), made.ask(POD)] == [None, None]
    made.end("n1")
    made.settle(lambda _node: False)
    assert old.sent == [f"GET {BASE}"]


def test_a_rule_of_a_node_that_is_given_up_is_taken_back() -> None:
    server, clock = Server(), Clock()
    taints(server).ask(POD)
    api = Api(server, sleep=clock.sleep, clock=clock)  # type: ignore[arg-type] # no watch is asked for
    take_back(api, "n2")
    assert list(server.stored) == [name_of("n1")]
    take_back(api, "n1")
    take_back(api, "n1")
    assert server.stored == {}


def test_where_a_pod_with_claims_is_left_alone_the_others_are_evicted() -> None:
    """A taint is on all GPUs of the node: it would end a pod that is declared to stay."""
    rules = pod_rules([make_stack(rollout={"drain": {"claims": "taint", "onlyWait": ["research"]}})])
    uses = {
        name: pod_use(
            msgspec.convert(
                {
                    "metadata": {"name": name, "namespace": name, "uid": name},
                    "spec": {"nodeName": "n1", "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]},
                },
                Pod,
            ),
            rules,
            lambda _namespace, _name: Given(frozenset({"gpu.nvidia.com"})),
        )
        for name in ("serving", "research", "web")
    }
    found = {name: use for name, use in uses.items() if use is not None}
    assert [pod.is_by_claims for pod in node_pods(found.values()).gpu] == [False] * 3
    del found["research"]
    assert [pod.is_by_claims for pod in node_pods(found.values()).gpu] == [True] * 2


def test_where_a_pod_with_claims_is_to_be_replaced_first_the_others_are_evicted() -> None:
    """The taint that another pod of the node is ended by would not wait for its replacement."""
    drain = {"claims": "taint", "replaceFirst": {"podSelector": "app=serving", "namespaces": ["ml"]}}
    rules = pod_rules([make_stack(rollout={"drain": drain})])
    uses = [
        pod_use(
            msgspec.convert(
                {
                    "metadata": {"name": name, "namespace": "ml", "uid": name, "labels": {"app": name}},
                    "spec": {"nodeName": "n1", "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]},
                },
                Pod,
            ),
            rules,
            lambda _namespace, _name: Given(frozenset({"gpu.nvidia.com"})),
        )
        for name in ("serving", "batch")
    ]
    found = node_pods(use for use in uses if use is not None).gpu
    assert [(pod.name, pod.is_replaced_first) for pod in found] == [("batch", False), ("serving", True)]
    assert [pod.is_by_claims for pod in found] == [False] * 2


@pytest.mark.parametrize(("is_served", "told"), [(True, []), (False, ["u1"])])
def test_no_plan_says_that_a_pod_waits_for_a_budget_that_the_taint_does_not_ask(
    *, is_served: bool, told: list[str]
) -> None:
    class Budgeted(Server):
        def send(self, sent: Request) -> Answered:
            if sent.path == "/apis/policy/v1/poddisruptionbudgets":
                status = {"disruptionsAllowed": 0, "expectedPods": 1, "desiredHealthy": 1}
                budget = {"metadata": {"name": "b", "namespace": "ml"}, "spec": {"selector": WEB}, "status": status}
                return answer(200, {"items": [budget]})
            if sent.path == "/api/v1/namespaces/ml/pods":
                meta = {"name": "web", "namespace": "ml", "uid": "u1", "labels": WEB["matchLabels"]}
                return answer(200, {"items": [{"metadata": meta, "spec": {"nodeName": "n1"}}]})
            return super().send(sent)

    clock = Clock()
    api = Api(Budgeted(is_served=is_served), sleep=clock.sleep, clock=clock)  # type: ignore[arg-type] # no watch
    rules = PodRules(resources=frozenset({"nvidia.com/gpu"}), taints=True)
    cluster = KubernetesCluster(api, rules=rules, machines={"n1": Machine(hostname="n1")})
    assert list(cluster.refusals([POD])) == told


def test_a_name_of_any_node_is_one_of_an_object() -> None:
    longest = "n" * 253
    assert len(name_of(longest)) <= 253
    assert name_of(longest) != name_of("n" * 252)


@pytest.mark.parametrize(
    ("declared", "drivers", "is_tainted"),
    [
        ("taint", frozenset({"gpu.nvidia.com"}), True),
        ("taint", frozenset({"sriov.example", "gpu.nvidia.com"}), True),
        ("taint", frozenset({"compute-domain.nvidia.com"}), False),
        ("taint", None, False),
        ("evict", frozenset({"gpu.nvidia.com"}), False),
    ],
)
def test_only_pods_whose_gpus_are_by_claims_are_ended_so(
    declared: str, drivers: frozenset[str] | None, *, is_tainted: bool
) -> None:
    rules = pod_rules([make_stack(rollout={"drain": {"claims": declared}})])

    use = pod_use(POD_OF_CLAIMS, rules, lambda _namespace, _name: None if drivers is None else Given(drivers))

    assert use is not None
    assert use.pod.is_by_claims is is_tainted


def tolerating(*tolerations: dict[str, Any]) -> dict[str, Any]:
    """Return a device that a claim was given, as its request tolerates taints."""
    return {"driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-0", "tolerations": list(tolerations)}


def for_time(seconds: int | None = None, **more: Any) -> dict[str, Any]:
    time = {} if seconds is None else {"tolerationSeconds": seconds}
    return {"key": "grapnel.dev/upgrade", "operator": "Exists", "effect": "NoExecute", **time, **more}


@pytest.mark.parametrize(
    ("devices", "tolerates_s"),
    [
        ([tolerating()], 0),
        ([tolerating(for_time(600))], 600),
        ([tolerating(for_time(600), for_time(30))], 30),
        ([tolerating(for_time())], FOR_EVER),
        ([tolerating(for_time(600), for_time(key=""))], FOR_EVER),
        ([tolerating(for_time()), tolerating(for_time(60))], 60),
        ([tolerating(for_time()), tolerating()], 0),
        ([tolerating(for_time()), {**tolerating(), "driver": "nic.example"}], FOR_EVER),
        ([tolerating(for_time(effect=""))], 0),
        ([tolerating(for_time(effect="NoSchedule"))], 0),
        ([tolerating(for_time(key="example.com/other"))], 0),
        ([tolerating(for_time(operator="Equal", value="soon"))], 0),
        ([tolerating(for_time(-5))], 0),
        ([], 0),
    ],
)
def test_a_claim_tolerates_our_taint_as_its_devices_do(devices: list[dict[str, Any]], tolerates_s: float) -> None:
    allocation = {"devices": {"results": devices}}
    claim = msgspec.convert({"metadata": {"name": "a"}, "status": {"allocation": allocation}}, ResourceClaim)

    assert given_of(claim).tolerates_s == tolerates_s


def test_a_pod_that_tolerates_the_taint_for_ever_is_evicted_and_the_others_are_ended_by_it() -> None:
    """Nobody ended it, so the drain waited until its time was up."""
    rules = pod_rules([make_stack(rollout={"drain": {"claims": "taint"}})])
    times = {"for-ever": FOR_EVER, "long": 600.0, "at-once": 0.0}
    uses = [
        pod_use(
            msgspec.convert(
                {
                    "metadata": {"name": name, "namespace": "ml", "uid": name},
                    "spec": {"nodeName": "n1", "resourceClaims": [{"name": "gpu", "resourceClaimName": name}]},
                },
                Pod,
            ),
            rules,
            lambda _namespace, name: Given(frozenset({"gpu.nvidia.com"}), times[name]),
        )
        for name in times
    ]
    pods = {pod.name: pod for pod in node_pods(use for use in uses if use is not None).gpu}
    assert {name: pod.is_by_claims for name, pod in pods.items()} == {"for-ever": False, "long": True, "at-once": True}
    made = taints(Server())
    assert made.ask(pods["for-ever"]) is None
    assert not made.ends(pods["for-ever"]), "its disruption budgets are asked, and a plan says what they say"
    answered = made.ask(pods["long"])
    assert answered is not None
    assert "600 s" in answered.reason
