"""Who attacks, with credentials of their own: a node's kubelet by its client certificate, a pod's author by a token.

They ask the API server directly, one thing at a time: kubectl reads an object before it changes it, and what is
refused to it then is the reading.
"""

from __future__ import annotations

import json
import ssl
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPSConnection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lab.cluster import ControlPlane

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
OURS = "grapnel-system"
THEIRS = "team"  # the namespace in which the author of pods may edit


@dataclass(frozen=True)
class Said:
    """What the API server has answered."""

    status: int
    body: dict[str, Any]

    @property
    def refusal(self) -> str:
        """Why it was not done, empty where it was."""
        return "" if self.status < HTTPStatus.BAD_REQUEST else f"{self.status} {self.body['message']}"


@dataclass(frozen=True)
class Identity:
    """Somebody's credentials: a certificate, or a token, and nothing of an administrator's."""

    port: int
    tls: ssl.SSLContext
    token: str = ""

    def ask(self, method: str, path: str, body: object = None, kind: str = "application/json") -> Said:
        """Ask for one thing and nothing before it."""
        headers = {"Content-Type": kind} | ({"Authorization": f"Bearer {self.token}"} if self.token else {})
        with closing(HTTPSConnection("127.0.0.1", self.port, timeout=60, context=self.tls)) as connection:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return Said(answer.status, json.loads(answer.read()))

    def make(self, document: dict[str, Any]) -> dict[str, Any]:
        """Make an object; it has to be done."""
        said = self.ask("POST", path_of(document), document)
        assert not said.refusal, said.refusal
        return said.body

    def read(self, path: str) -> dict[str, Any]:
        """Return an object, or a list of some; it has to be there."""
        said = self.ask("GET", path)
        assert not said.refusal, said.refusal
        return said.body

    def items(self, path: str) -> list[dict[str, Any]]:
        """Return what a list has."""
        found: list[dict[str, Any]] = self.read(path)["items"]
        return found

    def patch_node(self, node: str, patch: object, part: str = "") -> str:
        """Change a Node; return why it was refused."""
        return self.ask("PATCH", f"/api/v1/nodes/{node}{part}", patch, STRATEGIC if part else MERGE).refusal


def path_of(document: dict[str, Any]) -> str:
    """Return where objects of this kind are made."""
    version, namespace = document["apiVersion"], document["metadata"].get("namespace")
    root = "/api/v1" if version == "v1" else f"/apis/{version}"
    return f"{root}/{f'namespaces/{namespace}/' if namespace else ''}{document['kind'].lower()}s"


def kubelet_of(control_plane: ControlPlane, node: str) -> Identity:
    """Return what root of a node has: the client certificate of its kubelet, in the group system:nodes."""
    return by_certificate(control_plane, control_plane.certificates.prepare_node(node))


def by_certificate(control_plane: ControlPlane, name: str) -> Identity:
    """Return whoever has the certificate of that name."""
    made = control_plane.certificates
    tls = ssl.create_default_context(cafile=str(made.certificate("ca")))
    tls.load_cert_chain(made.certificate(name), made.key(name))
    return Identity(control_plane.port, tls)


def author_in(control_plane: ControlPlane, namespace: str) -> Identity:
    """Return the token of an account that may edit one namespace, which is made with it."""
    kubectl = control_plane.kubectl
    kubectl(["create", "namespace", namespace])
    kubectl(["create", "serviceaccount", "author", "--namespace", namespace])
    who = f"--serviceaccount={namespace}:author"
    kubectl(["create", "rolebinding", "author", "--clusterrole=edit", who, "--namespace", namespace])
    token = kubectl(["create", "token", "author", "--namespace", namespace]).strip()
    tls = ssl.create_default_context(cafile=str(control_plane.certificates.certificate("ca")))
    return Identity(control_plane.port, tls, token)
