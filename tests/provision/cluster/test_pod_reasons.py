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
from provision.declaration.spec.model import Plugin
from provision.report.runs.remedies import Invocation
from provision.rollout.model import Phase, Record
from provision.rollout.status.model import NodeStatus
from provision.rollout.status.reported import CLASS, Reported, Room, User
from provision.rollout.status.situations import CORDONED, FAILED_IN, IDLE, SHORT_OF_GPUS, WORKING, Situation
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


def record(phase: Phase) -> Record:
    return Record(phase=phase, target="570.1", origin="550.1", began=NOW, since=NOW)


def explained(asked: AskedPod, *candidates: Candidate, **more: Any) -> PodReasons:
    return explain_pod(PodFacts(pod=asked, candidates=candidates, **{"runtime_class": NVIDIA} | more))


CLAIMS_TWO_SPEC = [{"name": "gpus", "resourceClaimName": "gpu"}]
CLAIMS_TWO = pod("", resourceClaims=CLAIMS_TWO_SPEC, runtimeClassName="")


def waiting(name: str) -> ResourceClaim:
    """Return a claim for two GPUs that has none yet."""
    return msgspec.convert(claim(name, "gpu-0", "gpu-1") | {"status": {}}, ResourceClaim)


def publishing(room: Room) -> Candidate:
    """Return a node that gives its GPUs to claims."""
    candidate = node(has=0)
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


@pytest.mark.parametrize(
    ("answer", "said", "todo"),
    [
        pytest.param(
            explained(pod(""), node()),
            ("asks", f"for no GPU: no container has {GPU} in its resources.limits"),
            f"give its container `resources: {{limits: {{{GPU}: 1}}}}`{AGAIN}",
            id="asks for none",
        ),
        pytest.param(
            explained(
                pod(containers=[{"resources": {"limits": {"rdma/hca": "1"}}}]), plugins=(Plugin(resource="a.b/gpu"),)
            ),
            ("asks", "for no GPU: no container has a.b/gpu in its resources.limits"),
            f"give its container `resources: {{limits: {{a.b/gpu: 1}}}}`{AGAIN}",
            id="asks for something else than what is declared",
        ),
        pytest.param(
            explained(pod(containers=[{"name": name, "resources": {"limits": {GPU: "1"}}} for name in "ab"])),
            ("asks", f"2 {GPU} of one node, all containers together"),
            "",
            id="two containers",
        ),
        pytest.param(
            explained(pod("", resourceClaims=[{"name": "a", "resourceClaimName": "gpu"}]), claims=None),
            ("asks", "by resource claims: gpu"),
            "`kubectl -n team describe resourceclaims` says what became of them",
            id="asks by a claim that nobody may read",
        ),
        pytest.param(
            explained(pod("", resourceClaims=[{"name": "a", "resourceClaimTemplateName": "gpus"}])),
            ("asks", "by a resource claim that is still to be made"),
            "`kubectl -n team get resourceclaims,resourceclaimtemplates`: the pod waits until it is there",
            id="asks by a claim that is still to be made",
        ),
        pytest.param(
            explained(CLAIMS_TWO, claims=(waiting("gpu"),)),
            ("asks", "2 gpu.nvidia.com, by resource claim gpu"),
            "",
            id="asks by a claim",
        ),
        pytest.param(
            explained(CLAIMS_TWO, claims=(waiting("gpu"),)),
            ("claim", "gpu has no device yet: it is given some when the scheduler finds a node"),
            "`grapnel explain claim team/gpu` says what keeps each device out",
            id="its claim has nothing yet",
        ),
        pytest.param(
            explained(CLAIMS_TWO, publishing(Room(4, 4, 3)), claims=(waiting("gpu"),)),
            ("node", "n1: 3 of its 4 gpu.nvidia.com are held by other pods, 1 free"),
            "`grapnel explain node n1` names those pods",
            id="too few are free for its claim",
        ),
        pytest.param(
            explained(CLAIMS_TWO, node(), claims=(waiting("gpu"),)),
            ("nodes", "none has gpu.nvidia.com"),
            "`grapnel status` shows which nodes have GPUs, and which",
            id="no node gives its GPUs to claims",
        ),
        pytest.param(
            explained(
                bound({"phase": "Running"}, resourceClaims=CLAIMS_TWO_SPEC),
                claims=(msgspec.convert(claim("gpu", "gpu-0", "gpu-3"), ResourceClaim),),
            ),
            ("claim", "gpu has gpu-0 of n1 (gpu.nvidia.com), gpu-3 of n1 (gpu.nvidia.com)"),
            "on n1: `grapnel-node explain team/train` says which GPUs, and why those",
            id="its claim has devices",
        ),
        pytest.param(
            explained(pod(), publishing(Room(4, 4, 1))),
            (
                "node",
                f"n1: gives its GPUs by claims, 3 of 4 gpu.nvidia.com are free, and {GPU} only by its DeviceClass",
            ),
            f"`kubectl get deviceclass gpu.nvidia.com -o yaml`: its extendedResourceName has to be {GPU}",
            id="asks for a resource where GPUs are given by claims",
        ),
        pytest.param(
            explained(pod(runtimeClassName=""), handlers=("gpus",)),
            ("class", "none is named: grapnel gives the driver's files to containers of its RuntimeClass alone"),
            f"give it `runtimeClassName: gpus`{AGAIN}",
            id="no class",
        ),
        pytest.param(
            explained(pod(), runtime_class=None),
            ("class", "nvidia, which this cluster does not have: no node can start its containers"),
            "`grapnel apply` makes the RuntimeClass nvidia, where it is declared",
            id="class that is not there",
        ),
        pytest.param(
            explained(pod(), handlers=("gpus",)),
            ("class", "nvidia, whose handler is nvidia, while gpus is declared"),
            f"give it `runtimeClassName: gpus`{AGAIN}",
            id="another class",
        ),
        pytest.param(
            explained(pod(), node(has=0)),
            ("nodes", f"none has {GPU}"),
            "`grapnel status` shows which nodes have GPUs, and which",
            id="nobody has any",
        ),
        pytest.param(
            explained(pod("8"), node(), node("n2", has=6)),
            ("nodes", f"none has 8 {GPU}: the most that one has is 6"),
            f"ask for at most 6 {GPU}{AGAIN}; or spread the work over several pods",
            id="more than any has",
        ),
        pytest.param(
            explained(pod(), node("n2", spec={"unschedulable": True}), node("n1", spec={"unschedulable": True})),
            ("node", "n1, n2: cordoned by somebody else"),
            "`kubectl uncordon n1 n2`, if nobody needs it so",
            id="cordoned",
        ),
        pytest.param(
            explained(pod(), node(held=4), node("n2", held=4)),
            ("node", f"n1, n2: 4 of its 4 {GPU} are held by other pods, 0 free"),
            "`grapnel explain node n1` names those pods",
            id="held",
        ),
        pytest.param(
            explained(pod(), node(spec={"taints": [{"key": "grapnel.dev/not-ready", "effect": "NoExecute"}]})),
            ("node", "n1: taint grapnel.dev/not-ready:NoExecute is not tolerated"),
            "`grapnel explain node n1` says why",
            id="it joins",
        ),
        pytest.param(
            explained(
                pod(), node(spec={"taints": [{"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}]})
            ),
            ("node", "n1: taint node.kubernetes.io/disk-pressure:NoSchedule is not tolerated"),
            "`kubectl describe node n1` says why",
            id="Kubernetes has closed it",
        ),
        pytest.param(
            explained(pod(), node(spec={"taints": [TAINTED]})),
            ("node", f"n1: taint {GPU}:NoSchedule is not tolerated"),
            f"in the pod: `tolerations: [{{key: {GPU}, operator: Exists, effect: NoSchedule}}]`, if it may be there; "
            f"or `kubectl taint node n1 {GPU}:NoSchedule-`",
            id="somebody has tainted it",
        ),
        pytest.param(
            explained(pod(), node(held=None, unasked="eve may not list pods")),
            ("not known", "what other pods hold on nodes: eve may not list pods"),
            "",
            id="held by nobody knows whom",
        ),
        pytest.param(
            explained(pod(status={"conditions": []}, schedulerName="mine"), node()),
            ("scheduler", "none has looked at it yet: it is to be mine"),
            "`kubectl get pods -n kube-system`",
            id="no scheduler",
        ),
        pytest.param(explained(pod(), node()), ("scheduler", "Unschedulable: 0/3 nodes are available"), "", id="words"),
        pytest.param(explained(pod(), unread=("nodes: no",)), ("not known", "nodes: no"), "", id="no rights"),
        pytest.param(
            explained(bound({"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Allocate failed"})),
            ("kubelet", "UnexpectedAdmissionError: Allocate failed"),
            "`grapnel explain node n1` says how that is; then `kubectl -n team delete pod train`: whatever manages it "
            "makes another",
            id="the device plugin refuses",
        ),
        pytest.param(
            explained(
                bound(
                    {
                        "containerStatuses": [
                            {
                                "name": "main",
                                "state": {
                                    "waiting": {"reason": "RunContainerError", "message": "grapnel-hook: no GPU"}
                                },
                            }
                        ]
                    }
                )
            ),
            ("container", "main waits: RunContainerError: grapnel-hook: no GPU"),
            "on n1: `journalctl -t grapnel-hook` has its reason",
            id="the hook refuses",
        ),
        pytest.param(
            explained(
                bound(
                    {
                        "containerStatuses": [
                            {
                                "name": "main",
                                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                                "lastState": {"terminated": {"exitCode": 3, "reason": "Error"}},
                            }
                        ]
                    }
                )
            ),
            ("container", "main waits: CrashLoopBackOff, ended before with 3: Error"),
            "`kubectl -n team describe pod train`",
            id="it ends again and again",
        ),
        pytest.param(
            explained(bound({"phase": "Pending"}), warnings=("FailedCreatePodSandBox: no runtime for nvidia",)),
            ("event", "FailedCreatePodSandBox: no runtime for nvidia"),
            "`grapnel explain node n1` says how that is",
            id="an event",
        ),
        pytest.param(
            explained(bound({"phase": "Running"})),
            ("has", f"2 {GPU} of n1"),
            "on n1: `grapnel-node explain team/train` says which GPUs, and why those",
            id="it runs",
        ),
    ],
)
def test_what_is_said_of_a_pod(answer: PodReasons, said: tuple[str, str], todo: str) -> None:
    assert said in answer.facts
    assert not todo or todo in answer.todo


@pytest.mark.parametrize(
    ("asked", "head"),
    [
        (pod(), "team/train: waits for a node"),
        (bound({}), "team/train: is on n1, and does not run yet"),
        (bound({"phase": "Running"}), "team/train: runs on n1"),
        (bound({"phase": "Failed", "reason": "Evicted"}), "team/train: has ended (Failed, Evicted), and holds nothing"),
        (pod(status={"phase": "Succeeded"}), "team/train: has ended (Succeeded), and holds nothing"),
    ],
)
def test_the_state_of_a_pod_comes_first(asked: AskedPod, head: str) -> None:
    assert explained(asked).head == head


def test_a_change_is_made_in_what_makes_the_pod() -> None:
    asked = msgspec.structs.replace(
        pod(""),
        metadata=msgspec.convert(
            {
                "name": "train",
                "namespace": "team",
                "ownerReferences": [{"kind": "Job", "name": "train", "controller": True}],
            },
            type(pod().metadata),
        ),
    )
    assert explained(asked).todo[0].endswith(", in the template of what makes it (Job train)")


def test_commands_ask_the_same_cluster() -> None:
    facts = PodFacts(pod=pod(), candidates=(node(held=4),), runtime_class=NVIDIA)
    assert explain_pod(facts, Invocation(("--context", "b"))).todo == (
        "`grapnel explain node n1 --context b` names those pods",
    )


def test_the_words_of_the_scheduler_are_told_once() -> None:
    assert "event" not in dict(explained(pod(), warnings=("FailedScheduling: 0/3 nodes are available",)).facts)


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
