"""Defines the options that say which cluster the nodes belong to, and opens that cluster."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from provision.base.errors import UsageError
from provision.cli.session.fleet import inventories_of
from provision.cluster import Asked, LocalCluster, Machine, connect, pod_rules, state_file_path
from provision.cluster.members import open_members
from provision.declaration.fleet.load import load
from provision.declaration.fleet.resolve import resolve_nodes
from provision.declaration.fleet.sources import inventory_key
from provision.declaration.spec.model import Tool
from provision.rollout.adapters import POLL_S, utc_now

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from provision.cluster.kubernetes.cluster import KubernetesCluster
    from provision.declaration.fleet.model import Fleet
    from provision.declaration.spec.model import QueryGate, StackSpec
    from provision.rollout.interface.cluster import Cluster, NodeProblem
    from provision.rollout.model import NodeView


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The nodes of a command: their declarations in the inventory's order, and where their state lives.

    ``stack`` is the declaration's name.

    ``machines`` are what the cluster finds them by; what a machine says of itself is added with its facts. ``groups``
    are the inventory's, by node. ``clock`` and ``poll_s`` are the rollout's. ``metrics_file`` is kept while it runs. A
    branch in a declaration gets its version when facts are there. ``kubernetes`` is the part of the cluster that is one
    of Kubernetes, None where there is none. ``unnamed`` are the nodes of the fleet that were left out, of which some
    may be in a domain with one that was not; `with_unnamed` looks at them.
    """

    stacks: dict[str, StackSpec]
    cluster: Cluster
    machines: dict[str, Machine] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    clock: Callable[[], datetime] = utc_now
    poll_s: float = POLL_S
    metrics_file: Path | None = None
    kubernetes: KubernetesCluster | None = None
    unnamed: Mapping[str, NodeView | NodeProblem] = field(default_factory=dict)
    stack: str = "default"


def cluster_words(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the options that select the same cluster, those alone that were given."""
    kubeconfig = ("--kubeconfig", str(args.kubeconfig)) if args.kubeconfig else ()
    context = ("--context", args.context) if args.context else ()
    return (*kubeconfig, *context, *(("--no-cluster",) if args.no_cluster else ()))


def open_scope(
    args: argparse.Namespace,
    fleet: Fleet,
    stacks: dict[str, StackSpec],
    addresses: Mapping[str, frozenset[str]] | None = None,
    *,
    all_pods: bool = False,
) -> Scope:
    """Return the nodes and their cluster; a state file on this machine serves machines without one.

    ``stacks`` are the nodes' declarations: the dict itself is kept, since versions are chosen later. ``addresses`` are
    those of the nodes; the resolver is asked where they are not given and a cluster wants them. ``all_pods`` have to
    leave a node, and not only those that use a GPU.
    """
    if args.no_cluster and (args.kubeconfig or args.context):
        raise UsageError("--no-cluster cannot be combined with --kubeconfig or --context", hint="leave one of them out")
    state_file = state_file_path(inventory_key(fleet.inventories, Path.cwd()), os.environ)
    groups = {node.name: node.groups for node in fleet.nodes}
    journal, name = LocalCluster(state_file), fleet.declaration.metadata.name
    if args.no_cluster:
        return Scope(stacks=stacks, cluster=journal, groups=groups, stack=name)
    machines: dict[str, Machine] = {}
    opened: list[KubernetesCluster] = []

    def connect_kubernetes() -> Cluster:
        found = connect(
            args.kubeconfig,
            args.context,
            os.environ,
            state_file=state_file,
            rules=replace(pod_rules(stacks.values()), takes_all=all_pods),
            machines=machines,
            asked=asked_of(stacks),
        )
        if isinstance(found, LocalCluster):
            return journal
        opened.append(cast("KubernetesCluster", found))
        return found

    cluster = open_members(stacks, connect_kubernetes, journal=journal, machines=machines, environ=os.environ)
    if cluster is not journal:
        found = resolve_nodes(fleet.nodes) if addresses is None else addresses
        machines.update({name: Machine(addresses=each) for name, each in found.items()})
    kubernetes = opened[0] if opened else None
    return Scope(stacks=stacks, cluster=cluster, machines=machines, groups=groups, kubernetes=kubernetes, stack=name)


def with_unnamed(args: argparse.Namespace, fleet: Fleet, scope: Scope) -> Scope:
    """Return the scope with the nodes that are not named, where they may be in a domain with one that is."""
    if not args.limit or all(node.stack.rollout.domains is None for node in fleet.nodes):
        return scope
    named = {node.name for node in fleet.nodes}
    whole = load(args.file, inventories_of(args), limit="", directory=Path.cwd(), environ=os.environ)
    stacks = {node.name: node.stack for node in whole.nodes if node.name not in named}
    others = open_scope(args, whole, stacks, resolve_nodes(whole.nodes))
    return replace(scope, groups=others.groups, unnamed=others.cluster.observe(tuple(stacks)) if stacks else {})


def asked_of(stacks: Mapping[str, StackSpec]) -> Asked:
    """Return what the declarations want to know of Nodes, and to ask of other tools."""
    return Asked(
        labels=label_keys(stacks),
        respect=respected(stacks),
        maintenances=any(stack.rollout.maintenance.node_maintenances for stack in stacks.values()),
        opts_out=any(stack.rollout.maintenance.nvsentinel for stack in stacks.values()),
    )


def label_keys(stacks: Mapping[str, StackSpec]) -> frozenset[str]:
    """Return the labels of Nodes that declarations ask for."""
    places = [each for stack in stacks.values() for each in (stack.rollout.zones, stack.rollout.domains)]
    return frozenset(each.node_label for each in places if each is not None and each.node_label is not None)


def respected(stacks: Mapping[str, StackSpec]) -> frozenset[Tool]:
    """Return the tools that declarations respect; whoever is asked for nodes is respected as well."""
    found = {tool for stack in stacks.values() for tool in stack.rollout.respect}
    is_asked = any(stack.rollout.maintenance.node_maintenances for stack in stacks.values())
    return frozenset(found | {Tool.MAINTENANCE_OPERATOR} if is_asked else found)


def declared_gates(stacks: Mapping[str, StackSpec]) -> tuple[QueryGate, ...]:
    """Return the gates of a rollout: all nodes declare the same."""
    return next((stack.rollout.gates for stack in stacks.values()), ())
