"""`grapnel explain pod` and `explain node` on a real cluster: Nodes, pods and people who may not look at all of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lab.machine.errors import CommandError
from provision.cli import main
from provision.cluster.kubernetes.nodes.marks import UPGRADE
from provision.cluster.record import encode_record
from tests.provision.cluster.samples import RECORD
from tests.provision.cluster.stage import GPU, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.provision.cluster.stage import Stage

    Explain = Callable[..., str]

pytestmark = pytest.mark.functional


@pytest.fixture
def explain(stage: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Explain:
    monkeypatch.delenv("COLUMNS", raising=False)  # which a runner of tests may set

    def asked(*words: str, code: int = 0, kubeconfig: Path | None = None) -> str:
        found = main(["explain", *words, "--kubeconfig", str(kubeconfig or stage.control_plane.kubeconfig)])
        told = capsys.readouterr()
        assert found == code, told.err
        return told.err if code else told.out

    return asked


def make_pod(stage: Stage, name: str, gpus: str, **spec: Any) -> None:
    """Make a pod that a scheduler has to find a node for."""
    resources = {"limits": {GPU: gpus}} if gpus else {}
    container = {"name": "main", "image": "x", "resources": resources}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]} | spec}
    stage.kubectl("create", "-f", "-", data=pod)


def test_a_pod_that_waits_is_told_why_node_by_node(stage: Stage, explain: Explain) -> None:
    pool = {"pool": "explained"}
    full, cordoned, upgraded, tainted = (stage.make_node(**pool) for _ in range(4))
    elsewhere = stage.make_node(pool="another")
    stage.make_pod(full, name="holder", gpus="3")
    stage.kubectl("cordon", cordoned)
    stage.kubectl("cordon", upgraded)
    stage.kubectl("annotate", "node", upgraded, f"{UPGRADE}={encode_record(RECORD)}")
    stage.kubectl("taint", "node", tainted, "team=b:NoSchedule")
    make_pod(stage, "explained", "2", nodeSelector=pool)
    wait_until(
        lambda: bool(stage.get("pod", "explained")["status"].get("conditions")), "the scheduler has looked at it"
    )

    told = explain("pod", "default/explained")

    lines = [" ".join(line.split()) for line in told.splitlines()]
    assert lines[0] == "default/explained: waits for a node"
    assert f"asks 2 {GPU}, container main" in lines
    assert "nodes are available" in next(line for line in lines if line.startswith("scheduler Unschedulable: 0/"))
    assert f"node {full}: 3 of its 4 {GPU} are held by other pods, 1 free" in lines
    assert f"node {cordoned}: cordoned by somebody else" in lines
    assert any(line.startswith(f"node {upgraded}: out of service for its upgrade: left in drain") for line in lines)
    assert f"node {tainted}: taint team=b:NoSchedule is not tolerated" in lines
    assert any(
        elsewhere in line and "label pool is another, and nodeSelector wants explained" in line for line in lines
    )
    assert f"do `kubectl uncordon {cordoned}`, if nobody needs it so" in lines


def test_a_pod_that_runs_or_failed_is_told_by_its_kubelet(stage: Stage, explain: Explain) -> None:
    node = stage.make_node()
    runs = stage.make_pod(node, gpus="2")
    stage.run_pod(runs)
    refused = stage.make_pod(node, gpus="4")
    stage.set_pod_status(
        refused, {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Allocate failed"}
    )

    told = explain("pod", f"default/{runs}")
    assert f"default/{runs}: runs on {node}" in told
    assert f"2 {GPU} of {node}" in told
    assert "UnexpectedAdmissionError: Allocate failed" in explain("pod", f"default/{refused}")


def test_what_others_write_moves_no_cursor(stage: Stage, explain: Explain) -> None:
    make_pod(stage, "hostile", "1", schedulerName="nobody")
    words = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "none\x1b[2J\nis free"}
    stage.set_pod_status("hostile", {"conditions": [words]})

    assert "scheduler  Unschedulable: none\\x1b[2J\\nis free" in explain("pod", "default/hostile")


def test_a_node_is_told_with_who_holds_it_and_since_when_it_is_cordoned(stage: Stage, explain: Explain) -> None:
    node = stage.make_node()
    holder = stage.make_pod(node, gpus="4")
    stage.kubectl("cordon", node)

    told = explain("node", node)

    assert f"4 gpu by default/{holder}" in told
    assert f"4 {GPU}, 4 can be given, 4 held, 0 free" in told
    assert "by somebody else than an upgrade that is recorded, since 20" in told
    assert f"`kubectl uncordon {node}`" in told


def test_what_is_not_there_is_said_with_what_is_near_or_was_refused(stage: Stage, explain: Explain) -> None:
    stage.kubectl("create", "namespace", "quotas")
    stage.kubectl("-n", "quotas", "create", "quota", "none", f"--hard=requests.{GPU}=0")
    template = {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "main", "image": "x", "resources": {"limits": {GPU: "1"}}}]},
    }
    replicas = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "train", "namespace": "quotas"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "x"}}, "template": template},
    }
    stage.kubectl("create", "-f", "-", data=replicas)
    wait_until(
        lambda: bool(stage.get("-n", "quotas", "events", "--field-selector", "reason=FailedCreate")["items"]),
        "the ReplicaSet says that its pod is refused",
    )

    told = explain("pod", "quotas/train-0", code=1)

    assert "there is no pod quotas/train-0" in told
    assert "ReplicaSet/train: Error creating: pods" in told
    assert "exceeded quota: none" in told
    assert "nobody is not a node of" in explain("node", "nobody", code=1)


def test_who_may_not_look_at_nodes_is_told_so(stage: Stage, explain: Explain, tmp_path: Path) -> None:
    make_pod(stage, "unseen", "1", schedulerName="nobody")
    stage.kubectl("create", "serviceaccount", "pods-alone")
    stage.kubectl("create", "role", "pods-alone", "--verb=list", "--resource=pods")
    stage.kubectl("create", "rolebinding", "pods-alone", "--role=pods-alone", "--serviceaccount=default:pods-alone")
    token = stage.kubectl("create", "token", "pods-alone").strip()
    config = json.loads(stage.kubectl("config", "view", "--raw", "-o", "json"))
    config["users"] = [{"name": config["contexts"][0]["context"]["user"], "user": {"token": token}}]
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(config))
    kubeconfig.chmod(0o600)

    told = explain("pod", "default/unseen", kubeconfig=kubeconfig)

    assert "asks       1 nvidia.com/gpu" in told
    assert "nodes: system:serviceaccount:default:pods-alone may not list nodes" in told
    assert "Events about it: system:serviceaccount:default:pods-alone may not list events" in told


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param({"runtimeClassName": "gone"}, 'RuntimeClass "gone" not found', id="a class that is not there"),
        pytest.param(
            {"containers": [{"name": "main", "image": "x", "resources": {"requests": {GPU: "1"}}}]},
            "Limit must be set",
            id="requests alone",
        ),
    ],
)
def test_the_page_has_the_words_of_the_api_server_that_makes_no_such_pod(
    stage: Stage, spec: dict[str, Any], words: str
) -> None:
    with pytest.raises(CommandError) as refused:
        make_pod(stage, "refused", "1", **spec)
    assert words in str(refused.value.hint)
