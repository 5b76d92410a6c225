"""A real API server for tests: Nodes as kubelets register them, the daemon's half, and credentials of each kind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from plugin.publication.node_object.node import ClusterNode
from plugin.publication.node_object.reporter import Reporter
from plugin.publication.node_object.session import Rhythm
from tests.plugin.daemon_process import REPOSITORY
from tests.plugin.node_object.written_log import WrittenLog
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from lab.cluster import ControlPlane

AT_ONCE = Rhythm(start_s=0.0)


def register(control_plane: ControlPlane, name: str) -> None:
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting"}
    labels = {"kubernetes.io/hostname": name, "nvidia.com/site": "rack-7"}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    control_plane.api.create("/api/v1/nodes", body | {"status": {"conditions": [ready]}})


class Running:
    """A reporter with the kubelet's credentials of a node, or with another kubeconfig."""

    def __init__(self, control_plane: ControlPlane, node: str, folder: Path, kubeconfig: str = "") -> None:
        self.control_plane = control_plane
        self.name = node
        if not kubeconfig:
            kubeconfig = control_plane.render_kubeconfig(control_plane.certificates.prepare_node(node))
        path = folder / "kubelet.conf"
        path.write_text(kubeconfig)
        self.logger = WrittenLog()
        reporter = Reporter(node, str(path), {}, self.logger, AT_ONCE)
        reporter.start()
        self.node = ClusterNode(reporter, self.logger)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.node.close()

    def read(self) -> dict[str, Any]:
        return self.control_plane.api.read(f"/api/v1/nodes/{self.name}")

    def conditions(self) -> dict[str, dict[str, str]]:
        return {each["type"]: each for each in self.read()["status"].get("conditions", [])}

    def statuses(self) -> dict[str, str]:
        return {kind: each["status"] for kind, each in self.conditions().items()}

    def labels(self) -> dict[str, str]:
        found: dict[str, str] = self.read()["metadata"]["labels"]
        return {key: value for key, value in found.items() if key.startswith("nvidia.com/")}

    def events(self) -> list[dict[str, Any]]:
        selector = quote(f"involvedObject.name={self.name},source=grapnel-node")
        path = f"/api/v1/namespaces/default/events?fieldSelector={selector}"
        found: list[dict[str, Any]] = self.control_plane.api.read(path)["items"]
        return found

    def wait(self, holds: Any) -> None:
        wait_until(holds, lambda: f"{self.logger.text()}\n{self.read()}")


def service_account(control_plane: ControlPlane, name: str, *roles: str) -> str:
    """Return a kubeconfig with a token of a service account that has the cluster roles of files in deploy/rbac."""
    control_plane.kubectl(["create", "serviceaccount", name])
    for role in roles:
        control_plane.kubectl(["apply", "-f", str(REPOSITORY / f"deploy/rbac/{role}.yaml")])
        binding = [f"--clusterrole=grapnel-{role}", f"--serviceaccount=default:{name}"]
        control_plane.kubectl(["create", "clusterrolebinding", f"{name}-{role}", *binding])
    token = control_plane.kubectl(["create", "token", name]).strip()
    config = json.loads(control_plane.render_kubeconfig("admin"))
    config["users"][0]["user"] = {"token": token}
    return json.dumps(config)
