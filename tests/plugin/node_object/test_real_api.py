"""A real API server with NodeRestriction and RBAC, without nodes: what credentials of each kind may and may not do."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from plugin.devices.health.model import FindingChange
from tests.plugin.node_object.real_cluster import Running, register, service_account
from tests.plugin.node_object.states import UUIDS, XID_48, observed, transition, without_answer

if TYPE_CHECKING:
    from pathlib import Path

    from lab.cluster import ControlPlane

pytestmark = pytest.mark.functional  # etcd and an API server

LABELS = {"nvidia.com/gpu.count": "2", "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}


def test_the_kubelets_own_credentials_are_enough(control_plane: ControlPlane, node: str, tmp_path: Path) -> None:
    with Running(control_plane, node, tmp_path) as running:
        running.node.label(LABELS)
        running.node.show(observed("", ""))
        running.wait(lambda: running.statuses().get("GPUsHealthy") == "True")
        running.node.show(observed(XID_48, "", transitions=(transition(),)))
        running.wait(lambda: running.statuses()["GPUsHealthy"] == "False")
        running.wait(lambda: len(running.events()) == 1)
        running.wait(lambda: running.labels() == {**LABELS, "nvidia.com/site": "rack-7"})
        assert running.statuses()["GPUDriverReady"] == "True"
        assert running.statuses()["Ready"] == "True"
        event = running.events()[0]
        assert (event["type"], event["reason"], event["count"]) == ("Warning", "GPUXidError", 1)
        described = control_plane.kubectl(["describe", "node", node])
    assert "GPUXidError" in described.partition("Events:")[2]
    assert UUIDS[0] in described
    assert not running.logger.lines("level=warning")


def test_annotations_are_set_and_set_again_on_a_node_that_was_recreated(
    control_plane: ControlPlane, node: str, tmp_path: Path
) -> None:
    with Running(control_plane, node, tmp_path) as running:

        def annotation() -> str | None:
            found: str | None = running.read()["metadata"].get("annotations", {}).get("grapnel.dev/memory-units")
            return found

        running.node.annotate({"grapnel.dev/memory-units": "one"})
        running.wait(lambda: annotation() == "one")
        control_plane.kubectl(["delete", "node", node])
        register(control_plane, node)
        running.node.annotate({"grapnel.dev/memory-units": "two"})
        running.wait(lambda: annotation() == "two")
        running.node.annotate({"grapnel.dev/memory-units": None})
        running.wait(lambda: annotation() is None)


def test_a_stale_label_goes_and_those_of_others_stay(control_plane: ControlPlane, node: str, tmp_path: Path) -> None:
    with Running(control_plane, node, tmp_path) as running:
        running.node.label(LABELS)
        running.wait(lambda: "nvidia.com/gpu.product" in running.labels())
        running.node.label({"nvidia.com/gpu.count": "1"})
        running.wait(lambda: running.labels() == {"nvidia.com/gpu.count": "1", "nvidia.com/site": "rack-7"})


def test_a_label_of_another_manager_is_left_to_it_and_told(
    control_plane: ControlPlane, node: str, tmp_path: Path
) -> None:
    control_plane.kubectl(["label", "node", node, "nvidia.com/gpu.count=8", "--field-manager=gpu-feature-discovery"])
    with Running(control_plane, node, tmp_path) as running:
        running.node.label(LABELS)
        running.wait(lambda: running.labels().get("nvidia.com/gpu.product") == LABELS["nvidia.com/gpu.product"])
        running.wait(lambda: bool(running.logger.lines("labels that others own")))
        assert running.labels()["nvidia.com/gpu.count"] == "8"
        assert "nvidia.com/gpu.count (gpu-feature-discovery)" in running.logger.text()


def test_without_a_node_none_is_made_and_a_later_one_is_found(
    control_plane: ControlPlane, tmp_path: Path, node: str
) -> None:
    control_plane.kubectl(["delete", "node", node])
    with Running(control_plane, node, tmp_path) as running:
        running.node.label(LABELS)
        running.node.show(observed(""))
        running.wait(lambda: bool(running.logger.lines("there is no such node")))
        assert node not in control_plane.kubectl(["get", "nodes", "-o", "name"])
        register(control_plane, node)
        running.wait(lambda: running.statuses().get("GPUsHealthy") == "True")
        running.wait(lambda: "nvidia.com/gpu.count" in running.labels())


def test_a_label_for_a_node_that_was_recreated_is_not_applied_by_its_old_uid(
    control_plane: ControlPlane, tmp_path: Path, node: str
) -> None:
    with Running(control_plane, node, tmp_path) as running:
        running.node.label(LABELS)
        running.node.show(observed(""))
        running.wait(lambda: running.statuses().get("GPUsHealthy") == "True")
        running.wait(lambda: "nvidia.com/gpu.count" in running.labels())
        control_plane.kubectl(["delete", "node", node])
        running.node.label({"nvidia.com/gpu.count": "3"})
        running.wait(lambda: bool(running.logger.lines("level=warning")))
        assert node not in control_plane.kubectl(["get", "nodes", "-o", "name"])
        register(control_plane, node)
        running.wait(lambda: running.statuses().get("GPUsHealthy") == "True")
        running.wait(lambda: running.labels().get("nvidia.com/gpu.count") == "3")


def test_the_credentials_of_another_node_change_nothing(control_plane: ControlPlane, node: str, tmp_path: Path) -> None:
    other = control_plane.render_kubeconfig(control_plane.certificates.prepare_node("other"))
    with Running(control_plane, node, tmp_path, other) as running:
        running.node.show(observed(""))
        running.wait(lambda: bool(running.logger.lines("forbids")))
        assert "GPUsHealthy" not in running.statuses()
        assert "deploy/rbac" in running.logger.text()


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("patch node/NAME", "yes"),
        ("patch node/NAME --subresource=status", "yes"),
        ("create events", "yes"),
        ("patch events", "yes"),
        ("get events", "no"),
    ],
)
def test_a_kubelet_may_do_what_the_daemon_does(control_plane: ControlPlane, node: str, asked: str, answer: str) -> None:
    who = [f"--as=system:node:{node}", "--as-group=system:nodes"]
    kubectl = [str(control_plane.programs / "kubectl"), f"--kubeconfig={control_plane.kubeconfig}", "auth", "can-i"]
    done = subprocess.run(
        [*kubectl, *asked.replace("NAME", node).split(), *who], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == answer, done.stderr


def test_the_role_of_a_pod_is_enough_and_no_more_than_needed(
    control_plane: ControlPlane, node: str, tmp_path: Path
) -> None:
    kubeconfig = service_account(control_plane, "bound", "node")
    with Running(control_plane, node, tmp_path, kubeconfig) as running:
        running.node.label(LABELS)
        running.node.show(observed("", transitions=(transition(FindingChange.VERDICT, "verdict"),)))
        running.wait(lambda: "GPUsHealthy" in running.statuses() and "nvidia.com/gpu.count" in running.labels())
        running.wait(lambda: len(running.events()) == 1)
        running.node.show(without_answer("lost"))
        running.wait(lambda: len(running.events()) == 2)
        assert not running.logger.lines("level=warning")
    who = "--as=system:serviceaccount:default:bound"
    kubectl = [str(control_plane.programs / "kubectl"), f"--kubeconfig={control_plane.kubeconfig}", "auth", "can-i"]
    for asked in ("list nodes", "watch nodes", "delete nodes", "list events", "get secrets", "list pods"):
        done = subprocess.run([*kubectl, *asked.split(), who], capture_output=True, text=True, check=False)
        assert done.stdout.strip() == "no", asked


def test_a_pod_without_the_role_is_told_what_is_missing(control_plane: ControlPlane, node: str, tmp_path: Path) -> None:
    kubeconfig = service_account(control_plane, "unbound")
    with Running(control_plane, node, tmp_path, kubeconfig) as running:
        running.node.show(observed(""))
        running.wait(lambda: bool(running.logger.lines("the api server forbids get nodes")))
    token = json.loads(kubeconfig)["users"][0]["user"]["token"]
    assert token not in running.logger.text()
