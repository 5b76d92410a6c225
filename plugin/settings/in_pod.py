"""What is otherwise where the daemon runs as a pod: the host's own configuration, minus what a pod cannot do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.settings.node_config import IN_CLUSTER

if TYPE_CHECKING:
    from plugin.settings.node_config import NodeConfig

TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


def as_in_pod(config: NodeConfig, token: Path = TOKEN) -> NodeConfig:
    """Return the configuration of a pod.

    It has its service account instead of a kubeconfig of the host, or nothing where none is mounted: unless claims are
    to be served, which takes one. It does not start the host's hook, which needs all of the host's files; the hook sees
    at the next container that what it knows is old.
    """
    reaches_api = token.exists() or config.has_claims
    return replace(config, kubernetes_api=IN_CLUSTER if reaches_api else "", in_pod=True)
