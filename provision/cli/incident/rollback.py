"""`grapnel rollback`: returns nodes to the driver that they had before."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from provision.base.errors import ExitCode, UsageError
from provision.cli.answers import Answers
from provision.cli.incident.driver_verb import run_verb
from provision.cli.incident.node_request import Asking, ask
from provision.cli.session.fleet import inventories_of, named_nodes
from provision.cli.terminal import person
from provision.cluster import open_api
from provision.cluster.node_requests import KubernetesRequests
from provision.cluster.reader import KubernetesReader
from provision.rollout.changes.plan import DriverVerb, Extent
from provision.rollout.requests import send_back

if TYPE_CHECKING:
    import argparse

    from provision.cli.session.context import ContextBuilder
    from provision.cluster.kubernetes.api.client import Api


def run(args: argparse.Namespace, build: ContextBuilder | None = None) -> int:
    """Return nodes to the driver before, wave by wave: those that are named, or all of the last upgrade."""
    if args.further and not args.limit:
        raise UsageError("--further is about nodes that are named", hint="grapnel rollback --further NODE...")
    if (api := _cluster_alone(args)) is not None:
        if args.plan:
            raise UsageError("--plan takes an inventory", hint="the controller looks at a node when its turn has come")
        return ask_controller(args, api)
    extent = Extent(undoes_upgrade=not args.limit, in_waves=not args.no_waves, further=args.further)
    return run_verb(args, DriverVerb.BACK, extent, build)


def _cluster_alone(args: argparse.Namespace) -> Api | None:
    """Return the cluster where there is no inventory to reach machines by, None where there is one, or no cluster."""
    if args.no_cluster or inventories_of(args):
        return None
    return open_api(args.kubeconfig, args.context, os.environ)


def ask_controller(args: argparse.Namespace, api: Api) -> int:
    """Have the controller of a cluster return nodes; return 1 where that makes no sense for one of them."""
    nodes = tuple(dict.fromkeys(named_nodes(args)))
    seen = KubernetesReader(api, nodes, {}).look_at_lease()
    if seen.controller is None or not seen.is_led:
        raise UsageError(
            "there is no inventory to reach machines by",
            hint=f"name one with `--inventory`: {api.name} has no controller that leads, and could return them",
        )
    if not nodes:
        raise UsageError(
            "there is no inventory to reach machines by, and no Node is named",
            hint="grapnel rollback NODE..., which the controller returns; or declare the driver before in the GpuStack",
        )
    if args.further:
        raise UsageError("--further takes an inventory", hint="the controller goes back by one upgrade, and no further")
    if not args.yes and not _confirm(nodes):
        print("nothing was changed", file=sys.stderr)
        return ExitCode.FAILED
    answers, controller = Answers("rollback", args.json), seen.controller.holder
    asking = Asking(dict.fromkeys(nodes, KubernetesRequests(api, nodes, {})))
    return answers.end(ask(asking, lambda found: send_back(found, person(), controller), answers))


def _confirm(nodes: tuple[str, ...]) -> bool:
    if not sys.stdin.isatty():
        raise UsageError(
            "rollback asks before it changes machines, and standard input is not a terminal", hint="add --yes"
        )
    what = f"have the controller return {', '.join(nodes)} to the driver before, out of service for a while"
    print(f"{what}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
