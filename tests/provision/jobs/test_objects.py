"""What is read of Jobs and their pods."""

from __future__ import annotations

import pytest
from msgspec import convert

from provision.controller.jobs.node_run import _how_ended
from provision.controller.jobs.objects import AgentPod, Job, newest_pod


@pytest.mark.parametrize(
    ("conditions", "failure"),
    [
        ([], ""),
        ([{"type": "Complete", "status": "True"}], ""),
        ([{"type": "Failed", "status": "True", "message": "it failed"}], "it failed"),
        ([{"type": "Failed", "status": "False", "message": "no"}], ""),
        # On a node that has gone its pod never ends, and Failed never comes.
        ([{"type": "FailureTarget", "status": "True", "message": "too late"}], "too late"),
        ([{"type": "SuccessCriteriaMet", "status": "True"}], ""),
    ],
)
def test_a_job_has_failed_as_soon_as_that_is_certain(conditions: list[dict[str, str]], failure: str) -> None:
    assert convert({"metadata": {}, "status": {"conditions": conditions}}, Job).failure == failure


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"state": {"running": {}}}, ""),
        ({"state": {"terminated": {"exitCode": 0}}}, ""),
        (
            {"state": {"terminated": {"exitCode": 127, "message": "grapnel: not found\n"}}},
            " (the agent ended with 127: grapnel: not found)",
        ),
        (
            {
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
            },
            " (the agent ended with 1: Error)",
        ),
    ],
)
def test_an_agent_that_ends_badly_is_quoted(status: dict[str, object], words: str) -> None:
    """Its Job had reached its backoff limit, and nobody knew of what."""
    pod = convert({"metadata": {}, "status": {"containerStatuses": [{"name": "agent", **status}]}}, AgentPod)
    assert _how_ended(pod) == words


UID, NODE = "uid-of-the-job", "n1"


def agent_pod(
    name: str = "grapnel-1-x",
    *,
    owner: str = UID,
    controller: bool = True,
    node: str = NODE,
    created: str = "2026-05-04T12:00:00Z",
    **metadata: object,
) -> AgentPod:
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "grapnel-1", "uid": owner, "controller": controller}
    labels = {"job-name": "grapnel-1", "grapnel.dev/node-job": "x"}
    known = {"name": name, "labels": labels, "ownerReferences": [reference], "creationTimestamp": created}
    return convert({"metadata": {**known, **metadata}, "spec": {"nodeName": node}}, AgentPod)


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(agent_pod(owner="another"), id="of another Job of the name"),
        pytest.param(agent_pod(ownerReferences=[]), id="with the label alone"),
        pytest.param(agent_pod(controller=False), id="that the Job controller has not made"),
        pytest.param(agent_pod(node="n2"), id="on another node"),
        pytest.param(agent_pod(node=""), id="on no node"),
        pytest.param(agent_pod(annotations={"kubernetes.io/config.mirror": "x"}), id="that a kubelet made up"),
        pytest.param(agent_pod(deletionTimestamp="2026-05-04T12:00:30Z"), id="that is about to go"),
    ],
)
def test_a_pod_that_is_not_the_jobs_is_not_believed(pod: AgentPod) -> None:
    """The last pod with the Job's label was, and the kubelet of any node could write one."""
    assert newest_pod([pod], UID, NODE) is None
    own = agent_pod("own", created="2026-05-04T11:00:00Z")
    assert newest_pod([own, pod], UID, NODE) is own


def test_the_newest_pod_of_a_job_is_at_work() -> None:
    first, second = agent_pod("b"), agent_pod("a", created="2026-05-04T12:01:00Z")
    assert newest_pod([second, first], UID, NODE) is second
    assert newest_pod([first, second], UID, NODE) is second


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        pytest.param(
            {
                "status": {
                    "conditions": [
                        {
                            "type": "DisruptionTarget",
                            "status": "True",
                            "reason": "EvictionByEvictionAPI",
                            "message": "Eviction API: evicting",
                        }
                    ]
                }
            },
            "its pod was ended: Eviction API: evicting",
            id="evicted",
        ),
        pytest.param(
            {"status": {"phase": "Failed", "reason": "Terminated", "message": "imminent node shutdown"}},
            "its pod was ended: imminent node shutdown",
            id="shut down",
        ),
        pytest.param({"metadata": {"deletionTimestamp": "2026-05-04T12:00:30Z"}}, "its pod was deleted", id="deleted"),
        pytest.param({"status": {"phase": "Failed"}}, "its pod has ended", id="ended"),
    ],
)
def test_it_is_told_who_has_ended_a_pod(pod: dict[str, object], words: str) -> None:
    assert convert({"metadata": {}, **pod}, AgentPod).why_ended == words
