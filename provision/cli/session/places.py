"""Finds where the state of the nodes of a command lives: in a cluster, in a state file, or in both.

A declaration says which nodes another scheduler has. Without one, all of them are the cluster's, and where there is no
inventory either, they are called as their Nodes: so that it takes no more than a kubeconfig to help at night.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from provision.base.errors import UsageError
from provision.cli.session.fleet import inventories_of, load_fleet
from provision.cluster import Machine, open_api, state_file_path
from provision.declaration.fleet.errors import InventoryError
from provision.declaration.fleet.load import read_inventory
from provision.declaration.fleet.resolve import resolve_nodes
from provision.declaration.fleet.sources import inventory_key
from provision.declaration.spec.model import SchedulerKind

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from provision.cluster.kubernetes.api.client import Api


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The cluster, None where none is meant, and the state file of the inventory.

    ``in_cluster`` and ``in_file`` are the nodes that are selected, by where their state lives; of the latter,
    ``scheduled`` are those that a scheduler drains and resumes. ``machines`` are what the inventory knows of them.
    """

    api: Api | None
    state_file: Path
    in_cluster: tuple[str, ...] = ()
    in_file: tuple[str, ...] = ()
    scheduled: frozenset[str] = frozenset()
    machines: Mapping[str, Machine] = field(default_factory=dict)


def find_places(args: argparse.Namespace, *nodes: str) -> Places:
    """Return the places of ``nodes``, hosts or groups of the inventory, all of them where none is named.

    Raises UsageError, InventoryError, DeclarationError, ClusterError.
    """
    if args.no_cluster and (args.kubeconfig or args.context):
        raise UsageError("--no-cluster cannot be combined with --kubeconfig or --context", hint="leave one of them out")
    api = None if args.no_cluster else open_api(args.kubeconfig, args.context, os.environ)
    inventories, here = inventories_of(args), Path.cwd()
    state_file = state_file_path(inventory_key(inventories, here), os.environ)
    if api is not None and not inventories:
        return Places(api=api, state_file=state_file, in_cluster=tuple(dict.fromkeys(nodes)))
    if not args.file.exists():
        return _without_declaration(api, state_file, inventories, nodes)
    args.limit = ",".join(nodes)
    fleet = load_fleet(args)
    kinds = {node.name: node.stack.scheduler.kind for node in fleet.nodes}
    in_cluster = {name for name, kind in kinds.items() if kind in (SchedulerKind.AUTO, SchedulerKind.KUBERNETES)}
    if api is None:
        in_cluster.clear()
    addresses = resolve_nodes([node for node in fleet.nodes if node.name in in_cluster])
    return Places(
        api=api,
        state_file=state_file,
        in_cluster=tuple(name for name in kinds if name in in_cluster),
        in_file=tuple(name for name in kinds if name not in in_cluster),
        scheduled=frozenset(n for n, kind in kinds.items() if kind in (SchedulerKind.SLURM, SchedulerKind.COMMANDS)),
        machines={name: Machine(addresses=each) for name, each in addresses.items()},
    )


def _without_declaration(
    api: Api | None, state_file: Path, inventories: tuple[str, ...], nodes: tuple[str, ...]
) -> Places:
    if not inventories:
        raise InventoryError("there is no inventory", hint="name one with `--inventory`, or a cluster")
    inventory = read_inventory(inventories, limit=",".join(nodes), directory=Path.cwd(), environ=os.environ)
    names = tuple(host.name for host in inventory.hosts)
    if api is None:
        return Places(api=None, state_file=state_file, in_file=names)
    addresses = resolve_nodes(inventory.hosts)
    machines = {name: Machine(addresses=each) for name, each in addresses.items()}
    return Places(api=api, state_file=state_file, in_cluster=names, machines=machines)
