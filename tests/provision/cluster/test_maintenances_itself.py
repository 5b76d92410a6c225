"""NodeMaintenances, labels for NVSentinel and MachineConfigPools on a real API server; the test is the operator."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from provision.cluster.errors import ForbiddenError
from provision.cluster.kubernetes.nodes.maintenances import CORDONED_BEFORE, NOT_COLLECTED, REQUESTOR, name_of
from provision.cluster.kubernetes.nodes.others import MCO_PAIRS, MCO_STATE, OPT_OUT, Asked
from provision.cluster.kubernetes.permissions import REQUESTING_GRANT
from provision.cluster.reader import KubernetesReader
from provision.rollout.model import Maintenance, NodeView, Phase
from tests.provision.cluster.samples import RECORD
from tests.provision.cluster.stage import wait_until
from tests.provision.cluster.test_access import GRANTED, operator

if TYPE_CHECKING:
    from provision.cluster.kubernetes.cluster import KubernetesCluster
    from tests.provision.cluster.stage import Stage

pytestmark = pytest.mark.functional

CRDS = Path(__file__).with_name("crds")
REQUESTED = yaml.safe_load((Path(__file__).parents[3] / REQUESTING_GRANT).read_text())
ASKED = Asked(maintenances=True, opts_out=True)
FINALIZER = "maintenance.nvidia.com/finalizer"
BEGUN = replace(RECORD, phase=Phase.CORDON, is_requested=True, opted_out=OPT_OUT)


@pytest.fixture(scope="module", autouse=True)
def defined(stage: Stage) -> None:
    for definition in sorted(CRDS.iterdir()):
        stage.define(definition)


def view(cluster: KubernetesCluster, node: str) -> NodeView:
    seen = cluster.observe([node])[node]
    assert isinstance(seen, NodeView)
    return seen


def maintenance(cluster: KubernetesCluster, node: str) -> Maintenance:
    found = view(cluster, node).maintenance
    assert found is not None
    return found


def says(stage: Stage, node: str, reason: str) -> None:
    """Act as the operator: say how far it is."""
    condition = {
        "type": "Ready",
        "status": "True" if reason == "Ready" else "False",
        "reason": reason,
        "message": "",
        "lastTransitionTime": "2026-11-23T12:00:00Z",
    }
    patch = json.dumps({"status": {"conditions": [condition]}})
    stage.kubectl("patch", "nodemaintenance", name_of(node), "--subresource=status", "--type=merge", "-p", patch)


def adds_finalizer(stage: Stage, node: str) -> dict[str, Any]:
    """Act as the operator: write the object back as its client does, without a `cordon` that is false."""
    found: dict[str, Any] = stage.get("nodemaintenance", name_of(node))
    found["metadata"]["finalizers"] = [FINALIZER]
    del found["spec"]["cordon"]
    stage.kubectl("replace", "-f", "-", data=found)
    written: dict[str, Any] = stage.get("nodemaintenance", name_of(node))
    return written


def requested(stage: Stage) -> set[str]:
    return {each["spec"]["nodeName"] for each in stage.get("nodemaintenances", "--all-namespaces")["items"]}


def labels(stage: Stage, node: str) -> dict[str, str]:
    found = stage.get("node", node)["metadata"]["labels"]
    return {key: value for key, value in found.items() if key in OPT_OUT}


def test_a_maintenance_is_requested_granted_and_withdrawn(stage: Stage) -> None:
    node, cluster = stage.make_node(), stage.connect(asked=ASKED)
    assert view(cluster, node).opt_out == OPT_OUT
    assert not maintenance(cluster, node).is_requested
    with cluster.lease("ada@laptop"):
        cluster.write(node, BEGUN)
        cluster.request_maintenance(node)
        cluster.request_maintenance(node)
        assert labels(stage, node) == dict.fromkeys(OPT_OUT, "false")
        assert stage.get("node", node)["metadata"]["labels"]["nvidia.com/gpu-driver-upgrade-state"] == (
            "node-maintenance-required"
        )
        assert maintenance(cluster, node).is_requested
        assert not maintenance(cluster, node).is_granted

        written = adds_finalizer(stage, node)
        assert written["spec"] == {"requestorID": REQUESTOR, "nodeName": node, "cordon": True}, "its default comes back"
        assert written["metadata"]["annotations"] == {CORDONED_BEFORE: "true", NOT_COLLECTED: "true"}
        assert written["metadata"]["ownerReferences"][0]["name"] == node
        says(stage, node, "Ready")
        wait_until(lambda: maintenance(cluster, node).is_granted, "the word of the operator is read")
        assert view(cluster, node).held_by == "", "what grapnel has requested itself holds nothing"

        cluster.write(node, replace(BEGUN, phase=Phase.DRAIN), cordoned=True)
        cluster.write(node, replace(BEGUN, phase=Phase.DONE), cordoned=False)
        assert labels(stage, node) == {}
        assert "deletionTimestamp" in stage.get("nodemaintenance", name_of(node))["metadata"]
        assert "to be gone" in maintenance(cluster, node).words
        stage.kubectl(
            *("patch", "nodemaintenance", name_of(node), "--type=merge"), *("-p", '{"metadata":{"finalizers":[]}}')
        )
        wait_until(lambda: not maintenance(cluster, node).is_requested, "the operator has let it go")
    assert node not in requested(stage)


def test_the_next_engine_withdraws_what_a_killed_one_left_on_a_node_that_was_forgotten(stage: Stage) -> None:
    node, other = stage.make_node(), stage.make_node()
    killed = stage.connect(asked=ASKED)
    for each in (node, other):
        killed.observe([node, other])
        killed.write(each, BEGUN)
        killed.request_maintenance(each)
    stage.kubectl("annotate", "node", node, "grapnel.dev/upgrade-")

    with stage.connect(asked=ASKED).lease("ada@laptop"):
        assert requested(stage) & {node, other} == {other}


def test_with_a_node_kubernetes_deletes_what_was_requested_for_it(stage: Stage) -> None:
    node, cluster = stage.make_node(), stage.connect(asked=ASKED)
    cluster.observe([node])
    cluster.write(node, BEGUN)
    cluster.request_maintenance(node)
    assert node in requested(stage)
    stage.kubectl("delete", "node", node)
    wait_until(lambda: node not in requested(stage), "the garbage collector of Kubernetes deletes it")


def test_what_it_takes_is_made_sure_of_before_anything_is_changed(stage: Stage) -> None:
    node = stage.make_node()
    without = stage.connect(operator(stage, "no-requests"), asked=ASKED)
    with pytest.raises(ForbiddenError, match="may not get nodemaintenances in namespace default") as caught:
        without.lease("ada@laptop").__enter__()
    assert REQUESTING_GRANT in caught.value.hint

    allowed = stage.connect(operator(stage, "requests", granted=[*GRANTED, REQUESTED]), asked=ASKED)
    allowed.observe([node])
    with allowed.lease("ada@laptop"):
        allowed.write(node, BEGUN)
        allowed.request_maintenance(node)
        assert maintenance(allowed, node).is_requested
        allowed.write(node, None)
    assert node not in requested(stage)


def test_a_paused_pool_is_told_of_and_holds_nothing(stage: Stage) -> None:
    node, config = stage.make_node(), f"rendered-gpu-{'a' * 32}"
    pool = {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfigPool",
        "metadata": {"name": "gpu"},
        "spec": {"paused": True, "configuration": {"name": f"rendered-gpu-{'b' * 32}"}},
    }
    stage.kubectl("create", "-f", "-", data=pool)
    current, desired = MCO_PAIRS[0]
    stage.kubectl("annotate", "node", node, f"{current}={config}", f"{desired}={config}", f"{MCO_STATE}=Done")
    told = (
        "its MachineConfigPool gpu is paused: the machine-config-operator changes nothing until it is resumed, which "
        f"then brings rendered-gpu-{'b' * 32}, and may reboot it"
    )
    seen = view(stage.connect(), node)
    assert (seen.remarks, seen.held_by) == ((told,), "")
    looked = KubernetesReader(stage.connect()._api, [node], {}).look().nodes[node]
    assert isinstance(looked, NodeView)
    assert looked.remarks == (told,)
    stage.kubectl("patch", "mcp", "gpu", "--type=merge", "-p", '{"spec":{"paused":false}}')
    assert view(stage.connect(), node).remarks == ()
