"""`grapnel-node gpushare-extender` and `grapnel-node inspect`: memory units of a cluster, for users of gpushare."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.base.errors import ClusterError, ConfigError
from plugin.base.log import Logger, configure
from plugin.gpushare import requests
from plugin.gpushare.books.book import Books
from plugin.gpushare.books.inspection import render_details, render_summary
from plugin.gpushare.books.objects import parse_node, parse_pod
from plugin.gpushare.connections import Connections
from plugin.gpushare.follower import pages
from plugin.gpushare.identity import Identity
from plugin.gpushare.server import run_extender
from plugin.settings.node_config import IN_CLUSTER

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping
    from types import SimpleNamespace
    from typing import Any

    from plugin.gpushare.requests import Collection


def run(arguments: argparse.Namespace | SimpleNamespace) -> int:
    """Run the verb and return the exit code."""
    resource, kubeconfig = arguments.resource, arguments.kubeconfig
    if arguments.verb == "inspect":
        return inspect_cluster(arguments.node, resource, kubeconfig, is_detailed=arguments.details)
    return serve_extender(arguments.listen, arguments.tls, resource, kubeconfig, debug=arguments.debug)


def source_of(kubeconfig: str, environment: Mapping[str, str]) -> str:
    """Return what reaches the API: what was named, KUBECONFIG, a pod's service account, or the user's own file."""
    named = kubeconfig or environment.get("KUBECONFIG", "")
    if named:
        return named
    return IN_CLUSTER if environment.get("KUBERNETES_SERVICE_HOST") else str(Path("~/.kube/config").expanduser())


def serve_extender(address: str, tls_folder: str, resource: str, kubeconfig: str, *, debug: bool) -> int:
    """Run until SIGTERM; returns the exit code. `tls_folder`: "" for no TLS."""
    if tls_folder and sys.version_info < (3, 11):  # asyncio's StreamWriter.start_tls
        raise ConfigError("--tls needs Python 3.11", "run the extender in grapnel's image")
    configure(sys.stderr, debug=debug)
    identity = Identity(Path(tls_folder), Logger()) if tls_folder else None
    connections = Connections(source_of(kubeconfig, os.environ), os.environ)
    asyncio.run(run_extender(address, identity, resource, connections, Logger()))
    return 0


def inspect_cluster(node: str, resource: str, kubeconfig: str, *, is_detailed: bool) -> int:
    """Print who has which units, on one node or on all."""
    print(
        inspection(Connections(source_of(kubeconfig, os.environ), os.environ), node, resource, is_detailed=is_detailed),
        end="",
    )
    return 0


def inspection(api: Connections, node: str, resource: str, *, is_detailed: bool) -> str:
    """Return the text; raises ClusterError, also for a node that is not there."""
    books = read_books(api, resource, node)
    try:
        return (render_details if is_detailed else render_summary)(books, node)
    except KeyError as error:
        raise ClusterError(f"there is no node {node}", "see kubectl get nodes") from error


def read_books(api: Connections, resource: str, node: str = "") -> Books:
    """Return the books of all nodes, or of one; raises ClusterError, also where there is no such node."""
    books = Books()
    nodes = iter([api.call(requests.read_node(node))]) if node else _items(api, requests.NODES)
    books.replace_nodes(parse_node(document, resource) for document in nodes)
    for document in _items(api, requests.pods_of(node) if node else requests.PODS):
        pod = parse_pod(document, resource)
        if pod is not None:
            books.put_pod(pod)
    return books


def _items(api: Connections, collection: Collection) -> Iterator[dict[str, Any]]:
    for page in pages(api, collection):
        yield from page.get("items") or ()
