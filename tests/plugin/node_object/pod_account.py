"""The daemon as a pod on a real API server: its token, and what it may ask for, one thing at a time."""

from __future__ import annotations

import contextlib
import json
import ssl
from http import HTTPStatus
from http.client import HTTPSConnection
from typing import TYPE_CHECKING, Any

from plugin.publication.node_object.requests import STRATEGIC
from tests.plugin.daemon_process import REPOSITORY

if TYPE_CHECKING:
    from lab.cluster import ControlPlane

NAMESPACE = "grapnel-system"
SAMPLES = sorted((REPOSITORY / "docs/contracts/node-labels/good").glob("*.json"))
LABELS: list[dict[str, str]] = [
    *(json.loads(sample.read_text()) for sample in SAMPLES),
    {"nvidia.com/vgpu.host-driver-version": "550.90.05", "nvidia.com/vgpu.host-driver-branch": "r550_00"},
]


def account_on(control_plane: ControlPlane, node: str, namespace: str = NAMESPACE) -> str:
    """Return a kubeconfig with the token of a pod of the daemon on a node; its account is there already."""
    container = {"name": "daemon", "image": "none"}
    spec = {"nodeName": node, "serviceAccountName": "grapnel-node", "containers": [container]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"on-{node}", "namespace": namespace}, "spec": spec}
    control_plane.kubectl(["create", "-f", "-"], input_text=json.dumps(body))
    bound = ["--bound-object-kind=Pod", f"--bound-object-name=on-{node}"]
    return with_token(control_plane, *bound, namespace=namespace)


def with_token(control_plane: ControlPlane, *options: str, namespace: str = NAMESPACE) -> str:
    """Return a kubeconfig with a token of the daemon's account."""
    token = control_plane.kubectl(["create", "token", "grapnel-node", "--namespace", namespace, *options]).strip()
    config = json.loads(control_plane.render_kubeconfig("admin"))
    config["users"][0]["user"] = {"token": token}
    return json.dumps(config)


class Account:
    """Credentials with a token, about a node. Asking gives "" where something was done, else what was said."""

    def __init__(self, control_plane: ControlPlane, node: str, kubeconfig: str) -> None:
        self.node, self.kubeconfig = node, kubeconfig
        self._port = control_plane.port
        self._tls = ssl.create_default_context(cafile=str(control_plane.certificates.certificate("ca")))
        self._token = json.loads(kubeconfig)["users"][0]["user"]["token"]

    def ask(self, method: str, path: str, body: object = None, kind: str = "application/json") -> str:
        """Ask for one thing and nothing before it, as kubectl would."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        with contextlib.closing(HTTPSConnection("127.0.0.1", self._port, timeout=60, context=self._tls)) as connection:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            said: dict[str, Any] = json.loads(answer.read())
        return "" if answer.status < HTTPStatus.BAD_REQUEST else str(said["message"])

    def patch(self, patch: object, part: str = "", node: str = "") -> str:
        """Change the Node as the daemon does; `part` is its subresource, `node` another one."""
        return self.ask("PATCH", f"/api/v1/nodes/{node or self.node}{part}", patch, STRATEGIC)

    def tell(self, body: dict[str, Any], query: str = "") -> str:
        """Make an event."""
        return self.ask("POST", f"/api/v1/namespaces/{body['metadata']['namespace']}/events{query}", body)
