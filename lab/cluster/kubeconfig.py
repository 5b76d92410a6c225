"""Writes kubeconfig files: a server, its certificate authority, and a client certificate, all in one file."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.cluster.certificates import Certificates


def render_kubeconfig(server: str, certificates: Certificates, client: str, *, name: str = "grapnel-lab") -> str:
    """Return the file (JSON, which is YAML too) of ``client``; its contexts, cluster and user are called ``name``."""
    cluster = {"server": server, "certificate-authority-data": _data(certificates.certificate("ca").read_bytes())}
    user = {
        "client-certificate-data": _data(certificates.certificate(client).read_bytes()),
        "client-key-data": _data(certificates.key(client).read_bytes()),
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    return json.dumps(config, indent=2) + "\n"


def _data(content: bytes) -> str:
    return base64.b64encode(content).decode()
