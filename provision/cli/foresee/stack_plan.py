"""Carries out `grapnel plan` of GpuStacks: shows what the controller would do about the nodes of a cluster.

Everything is read from the API server, and nothing is asked of a node or changed, so that it takes no more than the
permissions to look.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from provision.base.errors import GrapnelError, UsageError
from provision.cli.foresee.stack_plan_words import ClusterPlan, cluster_plan_document, render_cluster_plan
from provision.cli.parsers.options import DECLARATION
from provision.cli.session.fleet import inventories_of
from provision.cli.terminal import print_findings
from provision.cluster.connect import open_api
from provision.cluster.kubernetes.objects.nodes import Node
from provision.cluster.kubernetes.watch.informer import NODES
from provision.cluster.reader import KubernetesReader
from provision.controller.decision.outlook import Moment
from provision.controller.decision.stack_plans import Planning
from provision.controller.stacks.file import judge_stack, read_stack_file
from provision.controller.stacks.reader import read_stacks
from provision.report.console import make_console
from provision.report.terminal import show

if TYPE_CHECKING:
    import argparse

    from provision.cluster.kubernetes.api.client import Api
    from provision.controller.stacks.model import Stack
    from provision.declaration.spec.text.document import Document


def run_if_meant(args: argparse.Namespace) -> ClusterPlan | None:
    """Plan GpuStacks where they are meant: by a file with a nodeSelector, or where there is no file and no inventory.

    Return what was shown; None where they are not meant.
    """
    is_named = args.file != DECLARATION or args.file.exists()
    document = read_stack_file(args.file) if is_named else None
    if document is None and (is_named or args.limit or args.no_cluster or inventories_of(args)):
        return None
    return run(args, document)


def run(args: argparse.Namespace, document: Document | None) -> ClusterPlan:
    """Show what the controller would do; with a file, if that was applied."""
    _require_no_machines(args)
    declared = None
    if document is not None:
        declared, warnings = judge_stack(document)
        print_findings(warnings)
    api = open_api(args.kubeconfig, args.context, os.environ)
    if api is None and document is None:
        raise GrapnelError(
            f"{args.file} does not exist, and there is neither an inventory nor a kubeconfig",
            hint=f"`grapnel init -f {args.file}` writes a declaration; `--kubeconfig` names the cluster of GpuStacks",
        )
    if api is None:
        raise GrapnelError(
            f"{args.file} has a nodeSelector, so it is a GpuStack of a cluster, and there is no kubeconfig",
            hint="add `--kubeconfig`",
        )
    plan = plan_cluster(api, declared)
    if args.json:
        print(cluster_plan_document(plan))
    else:
        show(make_console(sys.stdout), render_cluster_plan(plan, "" if document is None else str(args.file)))
    return plan


def _require_no_machines(args: argparse.Namespace) -> None:
    """Refuse options that are about machines of an inventory. Raises UsageError."""
    named = (
        "out",
        "inventory",
        "diff",
        "force",
        "bundle",
        "signers",
        "no_cluster",
        "payload",
        "keep_artifacts",
    )
    given = [f"--{name.replace('_', '-')}" for name in named if getattr(args, name, None)]
    given += ["NODE"] if args.limit else []
    if given:
        raise UsageError(
            f"{given[0]} is about machines of an inventory, and a GpuStack of a cluster has none",
            hint="leave it out; without its nodeSelector the file is a declaration for an inventory",
        )


def plan_cluster(api: Api, declared: Stack | None) -> ClusterPlan:
    """Return what the controller would do for every stack; for ``declared`` alone, as if it was applied."""
    followed = read_stacks(api)
    if followed is None:
        raise GrapnelError(
            f"{api.name} does not know GpuStacks",
            hint="kubectl apply -f deploy/crd/gpustacks.yaml; for machines of an inventory: `--inventory`",
        )
    nodes = api.list_all(NODES, Node)
    seen = KubernetesReader(api, (), {}).look_at_lease()
    moment = Moment(now=seen.time, standing=seen.standing, pause=seen.pause)
    planning = Planning(followed, nodes, moment, api.name)
    return ClusterPlan(
        place=api.name,
        stacks=planning.of_cluster() if declared is None else (planning.of_proposal(declared),),
        time=seen.time,
        tenant=seen.tenant,
        controller=seen.controller,
        pause=seen.pause,
        complaints=seen.complaints,
    )
