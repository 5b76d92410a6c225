"""`grapnel` whose playbooks run on the machines of a folder: ``GRAPNEL_MACHINES=FOLDER python -m ... VERB...``.

All of it is the product but what runs playbooks, and what plans the contents of a node.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from provision.apply.context import ApplyContext
from provision.apply.declarations import Declarations
from provision.apply.lock import lock_machines
from provision.apply.playbooks import Playbooks
from provision.cli import import_verb, main
from provision.cli.apply import PARALLEL, apply_nodes, claim_of
from provision.cli.cluster import open_scope
from provision.cli.driver_verb import _with_unnamed, change_drivers
from provision.cli.options import load_fleet
from provision.cli.plan import show_plans
from provision.fleet.resolve import resolve_nodes
from provision.rollout.verb_plan import DriverVerb, Extent
from tests.provision.staged.machines import Machines, planner

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from provision.cli import Verb
    from provision.cli.cluster import Scope
    from provision.fleet.model import Fleet

FOLDER = "GRAPNEL_MACHINES"
POLL_S = 0.2
COLLECTION = Path("/no/collection")  # its playbooks are known by their names


class Staged:
    """A verb of the product, which ``work`` does on the machines of the folder."""

    def __init__(self, verb: Verb, work: Callable[[argparse.Namespace, Fleet, ApplyContext, Scope], int]) -> None:
        self.SUMMARY = verb.SUMMARY
        self.configure = verb.configure
        self._work = work

    def run(self, args: argparse.Namespace) -> int:
        """Do as the product's own ``run`` does."""
        if isinstance(getattr(args, "nodes", None), list):
            args.limit = ",".join(args.nodes)
        fleet = load_fleet(args)
        addresses = resolve_nodes(fleet.nodes)
        with lock_machines(claim_of(fleet, addresses), os.environ) as environment:
            stacks = {node.name: node.stack for node in fleet.nodes}
            context = ApplyContext(
                runner=Machines(Path(os.environ[FOLDER])),
                plan=planner(stacks),
                playbooks=Playbooks(collection=COLLECTION, environment=environment),
                declarations=Declarations(stacks),
            )
            scope = replace(open_scope(args, fleet, stacks, addresses), poll_s=POLL_S)
            return self._work(args, fleet, context, scope)


def apply(args: argparse.Namespace, fleet: Fleet, context: ApplyContext, scope: Scope) -> int:
    """Bring the machines to their declaration."""
    parallel = args.parallel or min(PARALLEL, len(fleet.nodes))
    return apply_nodes(context, scope, parallel=parallel, consent=args.yes, waits=not args.no_wait)


def plan(args: argparse.Namespace, _fleet: Fleet, context: ApplyContext, scope: Scope) -> int:
    """Show what an apply would do."""
    return show_plans(context, scope, as_json=args.json, tell_changes=args.exit_code)


def rollback(args: argparse.Namespace, fleet: Fleet, context: ApplyContext, scope: Scope) -> int:
    """Return machines to the driver that they had before."""
    extent = Extent(
        undoes_upgrade=not args.nodes, groups=scope.groups, in_waves=not args.no_waves, further=args.further
    )
    extent = _with_unnamed(args, fleet, extent)
    return change_drivers(context, scope, DriverVerb.BACK, consent=args.yes, extent=extent)


WORK = {"apply": apply, "plan": plan, "rollback": rollback}


def load(name: str) -> Verb:
    """Return the module of a verb, or the verb as it is on these machines."""
    verb = import_verb(name)
    return Staged(verb, WORK[name]) if name in WORK else verb


if __name__ == "__main__":
    sys.exit(main(load=load))
