"""Says what `grapnel remove` takes back in a cluster, beside what it does on nodes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from provision.apply.model import Note
from provision.apply.removal import Part
from provision.cli.session.fleet import inventories_of
from provision.declaration.fleet.load import load
from provision.rollout.changes.cluster_removal import ClusterRemoval, plan_cluster_removal
from provision.rollout.changes.removing import Removing, left_in_cluster
from provision.rollout.decision.prepare import runtime_classes

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from provision.cli.session.scope import Scope
    from provision.declaration.fleet.model import Fleet
    from provision.rollout.changes.plan import AnyVerb


def with_classes(args: argparse.Namespace, verb: Removing, fleet: Fleet) -> Removing:
    """Return the verb with the RuntimeClasses of the nodes, and who else of the whole inventory needs them."""
    if Part.RUNTIME not in verb.parts:
        return verb
    classes = runtime_classes(node.stack for node in fleet.nodes)
    named = {node.name for node in fleet.nodes}
    whole = (
        load(args.file, inventories_of(args), limit="", directory=Path.cwd(), environ=os.environ).nodes
        if args.limit and classes
        else ()
    )
    needs = {node.name: runtime_classes((node.stack,)) for node in whole if node.name not in named}
    unselected = {name: tuple(node for node, those in needs.items() if name in those) for name in classes}
    return replace(verb, classes=classes, unselected=unselected)


def plan_of_cluster(verb: AnyVerb, scope: Scope) -> ClusterRemoval:
    """Return what would be taken back, nothing for a verb that is about the driver alone. Raises ClusterError."""
    if not isinstance(verb, Removing):
        return ClusterRemoval()
    return plan_cluster_removal(verb, scope.cluster, tuple(scope.stacks))


def left_behind(verb: AnyVerb, scope: Scope) -> str:
    """Return what stays in the cluster whatever happens, where there is one."""
    return left_in_cluster(verb) if isinstance(verb, Removing) and scope.kubernetes is not None else ""


def notes_of(taken: ClusterRemoval) -> Iterator[Note]:
    """Yield what was taken back, and what stays."""
    for node, change in taken.marks.items():
        if change.changes:
            yield Note(node, f"its Node: {', '.join(change.changes)}")
    for name in taken.classes:
        yield Note("", f"RuntimeClass {name} was deleted")
    for line in taken.stays:
        yield Note("", line)
