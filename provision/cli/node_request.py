"""What `skip`, `retry` and `abandon` have in common: find the nodes, ask for it, tell what that means for each."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from provision.cli.cluster import cluster_arguments
from provision.cli.options import debug_argument, inventories_of, inventory_argument
from provision.cli.terminal import say
from provision.errors import ExitCode, UsageError

if TYPE_CHECKING:
    import argparse

    from provision.cluster.node_requests import NodeRequests
    from provision.rollout.requests import Decide


@dataclass(frozen=True, slots=True)
class Asking:
    """The nodes that something is asked of, and where it is written down."""

    nodes: tuple[str, ...]
    requests: NodeRequests


def request_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the nodes and what finds them."""
    parser.add_argument("nodes", nargs="+", metavar="NODE", help="hosts or groups of the inventory, as in --limit")
    inventory_argument(parser)
    debug_argument(parser)
    cluster_arguments(parser)


def open_requests(args: argparse.Namespace) -> Asking:
    """Return the nodes that are named; where there is no inventory, they are Nodes of the cluster.

    The declaration does not matter: what is asked of a node is the same whatever it is to become.
    """
    from provision.cluster import Machine, open_api, state_file_path  # noqa: PLC0415 - start-up time
    from provision.cluster.node_requests import KubernetesRequests, StateFileRequests  # noqa: PLC0415 - start-up time
    from provision.fleet.errors import InventoryError  # noqa: PLC0415 - start-up time
    from provision.fleet.load import read_inventory  # noqa: PLC0415 - start-up time
    from provision.fleet.resolve import resolve_nodes  # noqa: PLC0415 - start-up time
    from provision.fleet.sources import inventory_key  # noqa: PLC0415 - start-up time

    if args.no_cluster and (args.kubeconfig or args.context):
        raise UsageError("--no-cluster cannot be combined with --kubeconfig or --context", hint="leave one of them out")
    api = None if args.no_cluster else open_api(args.kubeconfig, args.context, os.environ)
    inventories, here = inventories_of(args), Path.cwd()
    if not inventories and api is not None:
        names = tuple(dict.fromkeys(args.nodes))
        return Asking(names, KubernetesRequests(api, names, {}))
    if not inventories:
        raise InventoryError("there is no inventory", hint="name one with `--inventory`, or a cluster")
    inventory = read_inventory(inventories, limit=",".join(args.nodes), directory=here, environ=os.environ)
    names = tuple(host.name for host in inventory.hosts)
    if api is None:
        state_file = state_file_path(inventory_key(inventories, here), os.environ)
        return Asking(names, StateFileRequests(state_file, names))
    addresses = resolve_nodes(inventory.hosts)
    machines = {name: Machine(addresses=each) for name, each in addresses.items()}
    return Asking(names, KubernetesRequests(api, names, machines))


def ask(asking: Asking, decide: Decide) -> int:
    """Ask it of every node, and tell what that means; return 1 if it makes no sense for one of them."""
    answers = {node: asking.requests.change(node, decide) for node in asking.nodes}
    for node, answer in answers.items():
        for line in answer.words:
            say(f"{node}: {line}")
    return ExitCode.FAILED if any(answer.is_refused for answer in answers.values()) else ExitCode.DONE


def engine_at_work(asking: Asking) -> str:
    """Return who is at work, empty where nobody is."""
    tenant = asking.requests.reader().look().tenant
    return tenant.holder if tenant is not None and tenant.is_at_work else ""
