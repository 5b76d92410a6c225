"""Chooses the cluster: the kubeconfig's, the one that this process runs in, or none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from provision.cluster.errors import KubeconfigError
from provision.cluster.kubernetes.api.kubeconfig import find_kubeconfig, in_cluster, read_kubeconfig
from provision.cluster.kubernetes.nodes.others import EVERYTHING
from provision.cluster.local.cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provision.cluster.kubernetes.api.client import Api
    from provision.cluster.kubernetes.nodes.others import Asked
    from provision.cluster.kubernetes.pods.pod_rules import PodRules
    from provision.cluster.machine import Machine
    from provision.rollout.interface.cluster import Cluster


def connect(
    kubeconfig: Path | None,
    context: str | None,
    environ: Mapping[str, str],
    *,
    state_file: Path,
    rules: PodRules,
    machines: Mapping[str, Machine],
    asked: Asked = EVERYTHING,
) -> Cluster:
    """Return where node state lives, having made sure that it answers.

    ``state_file`` is used where there is neither a kubeconfig nor a cluster around this process.
    ``rules``, ``machines`` and ``asked``: see `KubernetesCluster`. Raises ClusterError.
    """
    api = open_api(kubeconfig, context, environ)
    if api is None:
        return LocalCluster(state_file)
    from provision.cluster.kubernetes.cluster import KubernetesCluster
    from provision.cluster.kubernetes.nodes.locks import Locks

    return KubernetesCluster(api, rules=rules, machines=machines, asked=asked, locks=Locks(api, asked.respect))


def open_api(kubeconfig: Path | None, context: str | None, environ: Mapping[str, str]) -> Api | None:
    """Return the API server, having made sure that it answers; None where none is meant. Raises ClusterError."""
    paths = find_kubeconfig(kubeconfig, environ)
    if not paths and context is not None:
        raise KubeconfigError(f"there is no kubeconfig with a context {context}", hint="add `--kubeconfig`")
    access = read_kubeconfig(paths, context) if paths else in_cluster(environ)
    if access is None:
        return None
    from provision.cluster.kubernetes.api.client import Api
    from provision.cluster.kubernetes.api.transport import Transport

    api = Api(Transport(access, key_folder=_key_folder(environ)))
    api.greet()
    return api


def _key_folder(environ: Mapping[str, str]) -> Path | None:
    """Return a folder in memory that ends with the session, if there is one."""
    runtime = environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) if runtime and os.access(runtime, os.W_OK) else None
