"""What the daemon says of its GPUs on its own Node, with the kubelet's kubeconfig: labels, conditions, events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.waiting import wait_for

if TYPE_CHECKING:
    from tests.e2e.stage import LabNode, Stage

pytestmark = pytest.mark.e2e

KUBECONFIG = "/etc/kubernetes/kubelet.kubeconfig"
HEALTHY, DRIVER = "GPUsHealthy", "GPUDriverReady"


def test_labels_conditions_and_events_appear_on_the_node(stage: Stage, lab_nodes: tuple[LabNode, ...]) -> None:
    node = lab_nodes[-1]
    stage.wait_until_settled(node)
    sick = node.uuids[2]

    def evidence() -> str:
        return f"{stage.api.conditions(node.name)}\n{stage.evidence(node.name)}"

    def status(condition: str) -> str:
        return stage.api.conditions(node.name).get(condition, ("", ""))[0]

    with node.configured(kubernetesApi=KUBECONFIG, nodeName=node.name):
        wait_for("both conditions are true", lambda: status(HEALTHY) == status(DRIVER) == "True", evidence=evidence)
        wait_for("the GPUs are counted", lambda: labels(stage, node).get("nvidia.com/gpu.count"), evidence=evidence)
        assert labels(stage, node)["nvidia.com/gpu.count"] == str(len(node.uuids))
        assert labels(stage, node)["nvidia.com/gpu.product"]

        node.change_gpus(lambda machine: machine.with_xid(2, 48))
        try:
            wait_for("the condition is false", lambda: status(HEALTHY) == "False", evidence=evidence)
            assert sick in stage.api.conditions(node.name)[HEALTHY][1]
            assert status(DRIVER) == "True"
            wait_for("an event tells", lambda: tells_of(stage, node, sick), evidence=evidence)
        finally:
            node.judge("set", sick, "healthy", "--reason", "the end of a test")
            node.judge("clear", sick)
        wait_for("the condition is true again", lambda: status(HEALTHY) == "True", evidence=evidence)
    stage.wait_until_settled(node)


def labels(stage: Stage, node: LabNode) -> dict[str, str]:
    found: dict[str, str] = stage.api.node(node.name).metadata.labels
    return found


def tells_of(stage: Stage, node: LabNode, uuid: str) -> bool:
    return any("xid 48" in event and uuid in event for event in stage.api.node_events(node.name))
