"""Carries out `grapnel init` where there are machines: looks at them, and writes the declaration that they meet.

Where none of them answers, the first keys are written, as for unknown machines.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import provision
from provision.apply.declarations import Declarations
from provision.apply.gather import gather_facts
from provision.apply.interrupt import cancel_on_signals
from provision.apply.model import Failure
from provision.apply.planner_process.bounded import BoundedPlanner
from provision.apply.playbooks import Playbooks
from provision.apply.runner import AnsibleRunner, find_collection
from provision.base.errors import ExitCode, GrapnelError
from provision.declaration.fleet.load import read_inventory
from provision.declaration.spec.template import render_first_keys
from provision.planning.draft.fleet import draft_fleet
from provision.planning.draft.text import render_declaration, render_groups
from provision.planning.supply.payload import store
from provision.planning.supply.payload.place import payload_folder
from provision.report.console import make_console
from provision.report.planned.draft import draft_document, render_draft, render_plain
from provision.report.progress.live import open_view
from provision.report.terminal import show

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from provision.apply.model import PlaybookRunner
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.fleet.inventory import Inventory
    from provision.declaration.spec.model import StackSpec
    from provision.planning.draft.fleet import FleetDraft
    from provision.planning.draft.model import Plan
    from provision.planning.node_plan import NodePlan


LOOK_S: Final = 120  # for all machines together: who does not answer until then is left out


class Write(Protocol):
    """Writes a whole file or nothing: `provision.cli.declare.init.write_declaration`."""

    def __call__(self, path: Path, text: str, *, force: bool) -> None:
        """Write it."""


@dataclass(frozen=True)
class Lookout:
    """What machines are looked at with; tests have others."""

    runner: PlaybookRunner
    playbooks: Playbooks
    plan: Plan


def run(args: argparse.Namespace, inventories: Sequence[str], write: Write) -> int:
    """Look at the machines and write; return the exit code."""
    require_free((args.file,), force=args.force)
    inventory = read_inventory(inventories, limit=args.limit, directory=Path.cwd(), environ=os.environ)
    require_no_declarations(inventory)
    lookout = make_lookout(inventories, payload_folder(args.payload, os.environ, args.file))
    return look_and_write(lookout, [host.name for host in inventory.hosts], args, write)


def require_no_declarations(inventory: Inventory) -> None:
    """Refuse an inventory that declares something already: it would override what is written."""
    of_hosts = [f"host {host.name}" for host in inventory.hosts if host.stack is not None]
    declaring = [*(f"group {name}" for name in inventory.group_stacks), *of_hosts]
    if declaring:
        raise GrapnelError(
            f"{declaring[0]} of the inventory has the variable grapnel_stack: this fleet is declared already",
            hint="compare it with the machines: `grapnel drift`; `grapnel init --plain` looks at none",
        )


def make_lookout(inventories: Sequence[str], payload: Path) -> Lookout:
    """Put runner, planner and playbooks together."""
    collection = find_collection(Path(provision.__file__).parent)
    if collection is None:
        raise GrapnelError("this installation has no grapnel.node collection", hint="reinstall grapnel")
    declarations = Declarations({})
    planner = BoundedPlanner(declarations, store.load_payload(payload))
    never = threading.Event()

    def plan(facts: NodeFacts, stack: StackSpec) -> NodePlan:
        declarations.stacks[facts.node.hostname] = stack
        return planner(facts.node.hostname, facts, never)

    return Lookout(
        AnsibleRunner(collection, None), Playbooks(collection=collection, inventory=tuple(inventories)), plan
    )


def look_and_write(lookout: Lookout, nodes: Sequence[str], args: argparse.Namespace, write: Write) -> int:
    """Gather facts, draft, write the files, and say what could not be said; the first keys where no machine answers."""
    groups_file = args.file.with_name(f"{args.file.stem}-groups.yaml")
    with cancel_on_signals() as cancel, open_view(make_console(sys.stderr), tuple(nodes), time.monotonic) as view:
        playbooks = replace(lookout.playbooks, mig_nodes=frozenset(nodes))
        answers = gather_facts(lookout.runner, replace(playbooks.facts(nodes), timeout_s=LOOK_S), view, cancel)
    failures = {node: one for node, one in answers.items() if isinstance(one, Failure)}
    facts = {node: one for node, one in answers.items() if not isinstance(one, Failure)}
    draft = draft_fleet(facts, lookout.plan)
    if facts:
        written = write_draft(draft, args.file, groups_file, write, force=args.force)
    else:
        write(args.file, render_first_keys(), force=args.force)
        written = (str(args.file),)
    if args.json:
        print(draft_document(draft, failures, written))
    elif facts:
        inventories = [_as_typed(each) for each in playbooks.inventory]
        show(make_console(sys.stdout), render_draft(draft, failures, written, inventories))
    else:
        show(make_console(sys.stdout), render_plain(failures, str(args.file)))
    return ExitCode.FAILED if failures else ExitCode.DONE


def _as_typed(inventory: str) -> str:
    """Return what names an inventory here: by its own name where it lies in this folder."""
    path = Path(inventory)
    return path.name if path.parent == Path.cwd() else inventory


def require_free(paths: Sequence[Path], *, force: bool) -> None:
    """Refuse before machines are looked at what would be refused after; raises GrapnelError."""
    for path in paths:
        if not force and os.path.lexists(path):
            raise GrapnelError(f"{path} already exists", hint="`--force` overwrites it")


def write_draft(draft: FleetDraft, file: Path, groups_file: Path, write: Write, *, force: bool) -> tuple[str, ...]:
    """Write the declaration and, where nodes differ, the inventory with groups; return what was written.

    The groups come first: a declaration that is there has its groups. They do not stay without it.
    """
    groups = render_groups(draft, file.name)
    if groups is not None:
        write(groups_file, groups, force=force)
    try:
        write(file, render_declaration(draft), force=force)
    except GrapnelError:
        if groups is not None and not force:
            groups_file.unlink()
        raise
    return (str(file), *([] if groups is None else [str(groups_file)]))
