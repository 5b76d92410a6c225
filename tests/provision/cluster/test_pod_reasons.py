"""Why a pod has its GPUs or none: said from what was read of pod, nodes and cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from provision.cluster.kubernetes.nodes.fit import Candidate, alike, is_tolerated, obstacles
from provision.cluster.kubernetes.nodes.pod_reasons import PodFacts, PodReasons, asked_by, explain_node, explain_pod
from provision.cluster.kubernetes.objects.claims import ResourceClaim
from provision.cluster.kubernetes.objects.core import RuntimeClass
from provision.cluster.kubernetes.objects.nodes import Node, Taint
from provision.cluster.kubernetes.objects.pods import AskedPod, Toleration
from provision.rollout.model import ChangeKind, Phase, Record
from provision.rollout.status.model import NodeStatus
from provision.rollout.status.reported import CLASS, Reported, Room, User
from provision.rollout.status.situations import (
    CORDONED,
    FAILED_IN,
    FAILED_INTERFACE,
    IDLE,
    SHORT_OF_GPUS,
    WORKING,
    Situation,
)
from tests.provision.cluster.samples import NOW
from tests.provision.cluster.test_devices_by_claims import claim

GPU = "nvidia.com/gpu"
AGAIN = ", and make it again: a pod's own cannot be changed"
NVIDIA = msgspec.convert({"metadata": {"name": "nvidia"}, "handler": "nvidia"}, RuntimeClass)
TAINTED = {"key": GPU, "effect": "NoSchedule"}
READY = {"type": "Ready", "status": "True"}
WORDS = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}


def pod(gpus: str = "2", *, status: dict[str, Any] | None = None, **spec: Any) -> AskedPod:
    """Return a pod that waits and asks for GPUs, with a RuntimeClass."""
    limits = {GPU: gpus} if gpus else {}
    whole = {
        "metadata": {"name": "train", "namespace": "team"},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}], "runtimeClassName": "nvidia"}
        | spec,
        "status": {"phase": "Pending", "conditions": [WORDS]} | (status or {}),
    }
    return msgspec.convert(whole, AskedPod)


def bound(status: dict[str, Any], **spec: Any) -> AskedPod:
    return pod(status={"conditions": []} | status, nodeName="n1", **spec)


def node(
    name: str = "n1",
    *,
    has: int = 4,
    gives: int | None = None,
    held: int | None = 0,
    spec: dict[str, Any] | None = None,
    labels: dict[str, str] | None = None,
    condition: dict[str, str] | None = None,
    situation: Situation = IDLE,
    record: Record | None = None,
    **more: Any,
) -> Candidate:
    """Return a node of so many GPUs; ``held`` None is not known."""
    gives = has if gives is None else gives
    whole = {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec or {},
        "status": {
            "capacity": {GPU: str(has), "cpu": "64"},
            "allocatable": {GPU: str(gives), "cpu": "63"},
            "conditions": [condition or READY],
        },
    }
    users = None if held is None else (User("other/pod", {GPU: held}),) if held else ()
    status = NodeStatus(
        name=name,
        situation=situation,
        record=record,
        reported=Reported(users=users, gpu_trouble=more.pop("trouble", ""), unasked=more.pop("unasked", "")),
        **more,
    )
    return Candidate(msgspec.convert(whole, Node), status)


def record(phase: Phase, kind: ChangeKind = ChangeKind.DRIVER) -> Record:
    return Record(phase=phase, target="570.1", origin="550.1", began=NOW, since=NOW, kind=kind)


def explained(asked: AskedPod, *candidates: Candidate, **more: Any) -> PodReasons:
    return explain_pod(PodFacts(pod=asked, candidates=candidates, **{"runtime_class": NVIDIA} | more))


CLAIMS_TWO_SPEC = [{"name": "gpus", "resourceClaimName": "gpu"}]
CLAIMS_TWO = pod("", resourceClaims=CLAIMS_TWO_SPEC, runtimeClassName="")


def waiting(name: str) -> ResourceClaim:
    """Return a claim for two GPUs that has none yet."""
    return msgspec.convert(claim(name, "gpu-0", "gpu-1") | {"status": {}}, ResourceClaim)


def publishing(room: Room, has: int = 0) -> Candidate:
    """Return a node that gives its GPUs to claims, and so many by its device plugin."""
    candidate = node(has=has)
    assert candidate.status is not None
    assert candidate.status.reported is not None
    reported = replace(candidate.status.reported, published={CLASS: room})
    return replace(candidate, status=replace(candidate.status, reported=reported))


DRAINS = WORKING[Phase.DRAIN]
FAILED = FAILED_IN[Phase.SWAP]


@pytest.mark.parametrize(
    ("candidate", "why"),
    [
        pytest.param(node(), [], id="nothing"),
        pytest.param(node(has=0), [f"has no {GPU}"], id="no GPU"),
        pytest.param(node(has=1), [f"has 1 {GPU}, and 2 are asked for"], id="too small"),
        pytest.param(
            publishing(Room(2, 2, 1), has=1),
            [f"has 1 {GPU}, and 2 are asked for; 2 more GPUs are given by claims alone, 1 of them free"],
            id="too small, and others are not for it",
        ),
        pytest.param(node(has=1, spec={"unschedulable": True}), [f"has 1 {GPU}, and 2 are asked for"], id="that alone"),
        pytest.param(
            node(gives=1, situation=SHORT_OF_GPUS, trouble="3 of 4 GPUs cannot be used: XID 79"),
            [f"can give 1 of its 4 {GPU}: 3 of 4 GPUs cannot be used: XID 79"],
            id="ill",
        ),
        pytest.param(node(held=3), [f"3 of its 4 {GPU} are held by other pods, 1 free"], id="held"),
        pytest.param(node(held=2), [], id="just enough"),
        pytest.param(node(held=None), [], id="nobody knows who holds any"),
        pytest.param(
            node(spec={"unschedulable": True}, situation=CORDONED), ["cordoned by somebody else"], id="cordoned"
        ),
        pytest.param(
            node(
                spec={"unschedulable": True, "taints": [{"key": "grapnel.dev/upgrade", "effect": "NoSchedule"}]},
                situation=DRAINS,
                record=record(Phase.DRAIN),
                reason="pod a/b is evicted",
            ),
            ["out of service for its upgrade: drain, pod a/b is evicted"],
            id="in its upgrade",
        ),
        pytest.param(
            node(spec={"unschedulable": True}, situation=FAILED, record=record(Phase.FAILED), reason="gone"),
            ["out of service for its upgrade: failed in swap, gone"],
            id="failed",
        ),
        pytest.param(
            node(situation=FAILED_INTERFACE, record=record(Phase.FAILED, kind=ChangeKind.INTERFACE)),
            [],
            id="in service while another interface failed",
        ),
        pytest.param(
            node(spec={"unschedulable": True}, situation=CORDONED, record=record(Phase.DONE)),
            ["cordoned by somebody else"],
            id="after its upgrade",
        ),
        pytest.param(
            node(condition={"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting"}),
            ["not ready: Kubelet stopped posting"],
            id="not ready",
        ),
        pytest.param(node(spec={"taints": [TAINTED]}), [f"taint {GPU}:NoSchedule is not tolerated"], id="taint"),
        pytest.param(
            node(spec={"taints": [{"key": "team", "value": "b", "effect": "NoExecute"}]}),
            ["taint team=b:NoExecute is not tolerated"],
            id="taint with a value",
        ),
        pytest.param(node(spec={"taints": [{"key": "x", "effect": "PreferNoSchedule"}]}), [], id="a wish"),
        pytest.param(
            node(held=4, spec={"unschedulable": True, "taints": [TAINTED]}, situation=CORDONED),
            [
                f"4 of its 4 {GPU} are held by other pods, 0 free",
                "cordoned by somebody else",
                f"taint {GPU}:NoSchedule is not tolerated",
            ],
            id="everything",
        ),
    ],
)
def test_what_is_in_the_way_on_a_node(candidate: Candidate, why: list[str]) -> None:
    assert [each.why for each in obstacles(pod(), candidate, {GPU: 2})] == why


def required(*expressions: dict[str, Any], **fields: str) -> dict[str, Any]:
    term: dict[str, Any] = {"matchExpressions": list(expressions)}
    if fields:
        term["matchFields"] = [{"key": "metadata.name", "operator": "In", "values": [fields["name"]]}]
    terms = {"nodeSelectorTerms": [{"matchExpressions": []}, term]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def wants(operator: str, *values: str, key: str = "gen") -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("spec", "is_fit"),
    [
        pytest.param({"nodeSelector": {"gen": "9"}}, True, id="selector"),
        pytest.param({"nodeSelector": {"gen": "8"}}, False, id="selector, another value"),
        pytest.param({"nodeSelector": {"rack": "1"}}, False, id="selector, no such label"),
        pytest.param(required(wants("In", "8", "9")), True, id="in"),
        pytest.param(required(wants("In", "8")), False, id="not in"),
        pytest.param(required(wants("NotIn", "8")), True, id="another"),
        pytest.param(required(wants("NotIn", "x", key="rack")), True, id="not there is another"),
        pytest.param(required(wants("Exists")), True, id="exists"),
        pytest.param(required(wants("DoesNotExist")), False, id="exists all the same"),
        pytest.param(required(wants("Gt", "8")), True, id="greater"),
        pytest.param(required(wants("Lt", "9")), False, id="not less"),
        pytest.param(required(wants("Gt", "8", key="rack")), False, id="no number"),
        pytest.param(required(wants("Exists"), name="n1"), True, id="by name"),
        pytest.param(required(wants("Exists"), name="n2"), False, id="by another name"),
        pytest.param(required(), False, id="an empty term selects nothing"),
    ],
)
def test_a_node_is_selected_as_the_scheduler_does_it(spec: dict[str, Any], *, is_fit: bool) -> None:
    assert (obstacles(pod(**spec), node(labels={"gen": "9"}), {GPU: 2}) == []) is is_fit


@pytest.mark.parametrize(
    ("toleration", "is_enough"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "team", "operator": "Exists"}, True),
        ({"key": "team", "value": "b"}, True),
        ({"key": "team", "value": "a"}, False),
        ({"key": "team"}, False),
        ({"key": "team", "value": "b", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_a_toleration_is_for_a_taint(toleration: dict[str, str], *, is_enough: bool) -> None:
    taint = Taint(key="team", value="b", effect="NoSchedule")
    assert is_tolerated(taint, [msgspec.convert(toleration, Toleration)]) is is_enough


def test_equal_nodes_are_told_together_the_nearest_first() -> None:
    found = alike(pod(), [node("n3", has=0), node("n2", held=3), node("n1", held=3), node("n4", has=0)], {GPU: 2})
    assert [names for names, _ in found] == [("n1", "n2"), ("n3", "n4")]


@pytest.mark.parametrize(
    ("spec", "asked"),
    [
        ({"containers": [{"resources": {"limits": {GPU: "1"}}}, {"resources": {"limits": {GPU: "2"}}}]}, {GPU: 3}),
        ({"initContainers": [{"resources": {"limits": {GPU: "8"}}}]}, {GPU: 8}),
        ({"initContainers": [{"resources": {"limits": {GPU: "1"}}, "restartPolicy": "Always"}]}, {GPU: 3}),
        ({"containers": [{"resources": {"limits": {GPU: "1", "rdma/hca": "1"}}}]}, {GPU: 1}),
        ({"containers": [{"resources": {"limits": {"example.com/gpu": "1", "cpu": "4"}}}]}, {"example.com/gpu": 1}),
        ({"containers": [{"resources": {"limits": {GPU: "0", "memory": "4"}}}]}, {}),
    ],
)
def test_what_a_pod_asks_for(spec: dict[str, Any], asked: dict[str, int]) -> None:
    assert asked_by(pod(**spec), ()) == asked


def test_a_pod_that_runs_says_nothing_of_nodes() -> None:
    assert "node" not in dict(explained(bound({"phase": "Running"}), node("n2", held=4)).facts)


@pytest.mark.parametrize(
    ("candidate", "said", "todo"),
    [
        (node(held=3), ("has", f"4 {GPU}, 4 can be given, 3 held, 1 free"), ""),
        (
            node(held=4),
            ("has", f"4 {GPU}, 4 can be given, 4 held, 0 free"),
            "all of it is taken: `kubectl get pods -A --field-selector spec.nodeName=n1` shows by whom",
        ),
        (node(held=None), ("has", f"4 {GPU}, 4 can be given, how many are held is not known"), ""),
        (
            Candidate(msgspec.convert({"metadata": {"name": "n1"}}, Node), None),
            ("has", "no GPU: none is registered with its kubelet"),
            "`grapnel apply n1`, if it was not applied yet; else on n1: `journalctl -u grapnel-node`",
        ),
        (
            node(
                spec={
                    "unschedulable": True,
                    "taints": [
                        {
                            "key": "node.kubernetes.io/unschedulable",
                            "effect": "NoSchedule",
                            "timeAdded": "2026-11-29T22:36:04Z",
                        }
                    ],
                }
            ),
            ("cordoned", "by somebody else than an upgrade that is recorded, since 2026-11-29T22:36:04Z"),
            "",
        ),
        (
            node(spec={"unschedulable": True}, situation=DRAINS, record=record(Phase.DRAIN)),
            ("cordoned", "for its upgrade"),
            "",
        ),
        (node(spec={"taints": [TAINTED]}), ("taint", f"{GPU}:NoSchedule"), ""),
    ],
)
def test_what_is_said_of_a_node(candidate: Candidate, said: tuple[str, str], todo: str) -> None:
    answer = explain_node(candidate)
    assert said in answer.facts
    assert answer.todo == ((todo,) if todo else ())
