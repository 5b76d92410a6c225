"""What is said of a pod that has no GPU, and what is to be done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from provision.cluster.kubernetes.nodes.pod_reasons import PodFacts, PodReasons, explain_pod
from provision.cluster.kubernetes.objects.claims import ResourceClaim
from provision.declaration.spec.model import Plugin
from provision.report.runs.remedies import Invocation
from provision.rollout.status.reported import Room
from tests.provision.cluster.test_devices_by_claims import claim
from tests.provision.cluster.test_pod_reasons import (
    AGAIN,
    CLAIMS_TWO,
    CLAIMS_TWO_SPEC,
    GPU,
    NVIDIA,
    TAINTED,
    bound,
    explained,
    node,
    pod,
    publishing,
    waiting,
)

if TYPE_CHECKING:
    from provision.cluster.kubernetes.objects.pods import AskedPod


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
