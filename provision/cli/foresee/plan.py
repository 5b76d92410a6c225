"""`grapnel plan`: shows what apply would change, node by node; changes nothing."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import provision
from provision.apply.context import ApplyContext
from provision.apply.converge import assess
from provision.apply.declarations import Declarations
from provision.apply.fleet import settled
from provision.apply.interrupt import cancel_on_signals
from provision.apply.model import Failure
from provision.apply.planner_process.bounded import BoundedPlanner
from provision.apply.playbooks import Playbooks
from provision.apply.runner import AnsibleRunner, find_collection
from provision.apply.supply.bundles import Bundles
from provision.apply.supply.kinds import foresee_builds
from provision.apply.supply.runfiles import Runfiles
from provision.base.errors import ExitCode, GrapnelError
from provision.cli.cluster import declared_gates, open_scope, with_unnamed
from provision.cli.fleet import load_fleet
from provision.cli.foresee.saved_plan import saver
from provision.cli.foresee.stack_plan import run_if_meant
from provision.cluster.machine import Machine
from provision.declaration.fleet.endpoint import network_endpoints
from provision.declaration.fleet.sources import inventory_key
from provision.planning.planner.bundled import declare_carried, declared_bundle
from provision.planning.planner.engines.hand_edits import overwrite_edits
from provision.planning.render.kubelet import declared_settings
from provision.planning.supply.builds.shelf import Shelf
from provision.planning.supply.bundle import read
from provision.planning.supply.bundle.errors import BundleError
from provision.planning.supply.payload import store
from provision.planning.supply.payload.place import payload_folder
from provision.report.console import make_console
from provision.report.documents.plans import plans_document
from provision.report.planned.builds import builds_document, render_builds
from provision.report.planned.diffs import render_diffs
from provision.report.planned.plans import render_plans
from provision.report.planned.rollout import render_rollout, rollout_document
from provision.report.progress.live import open_view
from provision.report.runs.durations import NOTHING_KNOWN, Durations
from provision.report.runs.store import runs_folder
from provision.report.terminal import show
from provision.rollout.decision.hours import opening_hours
from provision.rollout.decision.leaving import evictable
from provision.rollout.decision.prepare import prepare, runtime_classes
from provision.rollout.gates import ask_once
from provision.rollout.interface.node_marks import declared_marks
from provision.rollout.interface.tenancy import tenancy_order
from provision.rollout.simulate.foresee import foresee

if TYPE_CHECKING:
    import argparse
    import threading
    from collections.abc import Iterable, Mapping

    from rich.console import Console

    from provision.apply.model import Assessment
    from provision.cli.cluster import Scope
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.fleet.model import Fleet
    from provision.planning.supply.bundle.read import Bundle
    from provision.rollout.decision.prepare import Prepared
    from provision.rollout.decision.snapshot import NodeState
    from provision.rollout.interface.cluster import Cluster


def signers_file(args: argparse.Namespace, environment: Mapping[str, str]) -> Path | None:
    """Return the file of those who may sign bundles, None where bundles need not be signed."""
    given = environment.get("GRAPNEL_SIGNERS")
    return args.signers or (Path(given) if given else None)


class Seen(Protocol):
    """Sees what is planned before anybody else does; it may raise GrapnelError."""

    def __call__(self, answers: Mapping[str, Assessment | Failure], prepared: Prepared) -> None:
        """See it."""


class ContextBuilder(Protocol):
    """Puts runner, planner and playbooks together for a fleet: `build_context`, or what tests have instead."""

    def __call__(
        self, args: argparse.Namespace, fleet: Fleet, *, check: bool = ..., environment: Mapping[str, str] | None = ...
    ) -> ApplyContext:
        """Return the context of a command."""


def run(args: argparse.Namespace, build: ContextBuilder | None = None) -> int:
    """Gather facts, plan, and show the plans; of GpuStacks of a cluster, what its controller would do."""
    if (shown := run_if_meant(args)) is not None:
        if any(each.is_stuck for each in shown.stacks):
            return ExitCode.FAILED
        return ExitCode.CHANGES if args.exit_code and any(each.is_change for each in shown.stacks) else ExitCode.DONE
    fleet = load_fleet(args)
    context = (build or build_context)(args, fleet)
    scope = with_unnamed(args, fleet, open_scope(args, fleet, context.declarations.stacks))
    runs = runs_folder(os.environ, inventory_key(fleet.inventories, Path.cwd()))
    last = Durations(runs).read()

    save = None
    if args.out is not None:
        save = saver(args, scope)
    words = {"as_json": args.json, "tell_changes": args.exit_code, "with_files": args.diff}
    return show_plans(context, scope, **words, last=last, save=save)


def show_plans(  # noqa: PLR0913 - what a command line says; all but two by keyword
    context: ApplyContext,
    scope: Scope,
    *,
    as_json: bool,
    tell_changes: bool,
    with_files: bool = False,
    last: Mapping[str, float] = NOTHING_KNOWN,
    save: Seen | None = None,
) -> int:
    """Gather facts and print the plans, and have them saved; return the exit code."""
    answers, prepared = look_ahead(context, scope, save)
    if as_json:
        print(_document(answers, prepared, scope, with_files=with_files))
    else:
        console = make_console(sys.stdout)
        if with_files:
            show(console, render_diffs(answers))
        show_overview(console, answers, prepared, scope, last)
    return _exit_code(answers, prepared, tell_changes=tell_changes)


def _document(
    answers: Mapping[str, Assessment | Failure], prepared: Prepared, scope: Scope, *, with_files: bool
) -> str:
    rollout, builds = rollout_document(prepared, scope.cluster.name), builds_document(prepared.builds)
    return plans_document(answers, rollout, builds, with_files=with_files)


def show_overview(
    console: Console,
    answers: Mapping[str, Assessment | Failure],
    prepared: Prepared,
    scope: Scope,
    last: Mapping[str, float],
) -> None:
    """Print the plans, and below them what would be taken out of service and made in the cluster.

    ``last`` are the seconds that steps took last time.
    """
    show(console, render_plans(answers, prepared.refusals, last))
    show(console, render_builds(prepared.builds))
    kubernetes = "" if scope.kubernetes is None else scope.kubernetes.name
    show(console, render_rollout(prepared, scope.cluster.name, kubernetes))


def _exit_code(answers: Mapping[str, Assessment | Failure], prepared: Prepared, *, tell_changes: bool) -> int:
    results = [settled(node, answer) for node, answer in answers.items()]
    if prepared.refusals or any(result is not None and not result.is_good for result in results):
        return ExitCode.FAILED
    return ExitCode.CHANGES if tell_changes and prepared.is_change else ExitCode.DONE


def look_ahead(
    context: ApplyContext, scope: Scope, tell: Seen | None = None
) -> tuple[Mapping[str, Assessment | Failure], Prepared]:
    """Return what an apply would begin with, for nodes and cluster, after ``tell`` has seen it."""
    with cancel_on_signals() as cancel:
        answers, prepared = assess_fleet(context, scope, cancel)
        prepared = with_tenancy(prepared, scope)
    if tell is not None:
        tell(answers, prepared)
    return answers, prepared


def assess_fleet(
    context: ApplyContext, scope: Scope, cancel: threading.Event
) -> tuple[Mapping[str, Assessment | Failure], Prepared]:
    """Gather the nodes' facts in one run and plan each of them; progress is on standard error."""
    with open_view(make_console(sys.stderr), tuple(scope.stacks), time.monotonic) as view:
        answers = assess(context, scope.stacks, view, cancel)
    for node, answer in answers.items():
        if not isinstance(answer, Failure):
            scope.machines[node] = with_identity(scope.machines.get(node, Machine()), answer.facts)
    views = scope.cluster.observe(tuple(scope.stacks))
    prepared = foresee_refusals(prepare(answers, scope.stacks, views, scope.groups, scope.unnamed), scope.cluster)
    wanted = runtime_classes(scope.stacks[state.name] for state in prepared.states)
    missing = tuple(name for name in wanted if not scope.cluster.has_runtime_class(name, name))
    marks = scope.cluster.compare_marks({name: declared_marks(scope.stacks[name]) for name in scope.stacks})
    builds = foresee_builds(context, answers, prepared.todo)
    closed = opening_hours(prepared.states, prepared.policy, scope.clock()).closed
    known = replace(prepared, runtime_classes=missing, marks=marks, builds=builds, closed=closed)
    return answers, foresee_rollout(known, scope) if prepared.rollout else known


def foresee_rollout(prepared: Prepared, scope: Scope) -> Prepared:
    """Return it with the gates as they are now, and how long the roll-out is expected to take."""
    known = replace(prepared, gates=ask_once(declared_gates(scope.stacks)))
    return replace(known, forecast=foresee(known, scope.clock()))


def with_tenancy(prepared: Prepared, scope: Scope) -> Prepared:
    """Return it with how quotas, priorities and queues of the cluster differ from the declaration."""
    return replace(prepared, tenancy=scope.cluster.compare_tenancy(tenancy_order(scope.stack, scope.stacks)))


def foresee_refusals(prepared: Prepared, cluster: Cluster) -> Prepared:
    """Return it with what would refuse an eviction now, for the nodes that are to be drained."""
    draining = set(prepared.rollout)
    pods = [pod for state in prepared.states if state.name in draining for pod in evictable(state)]
    refused = cluster.refusals(pods)
    return (
        replace(prepared, states=tuple(_refused(state, refused) for state in prepared.states)) if refused else prepared
    )


def _refused(state: NodeState, refused: Mapping[str, str]) -> NodeState:
    blocked = {pod.uid: refused[pod.uid] for pod in evictable(state) if pod.uid in refused}
    return replace(state, blocked=blocked) if blocked else state


def with_identity(machine: Machine, facts: NodeFacts) -> Machine:
    """Return a machine with the host name and id that its facts give."""
    return replace(machine, hostname=facts.node.hostname, machine_id=facts.node.machine_id)


def build_context(
    args: argparse.Namespace, fleet: Fleet, *, check: bool = False, environment: Mapping[str, str] | None = None
) -> ApplyContext:
    """Put runner, planner and playbooks together for a fleet."""
    collection = find_collection(Path(provision.__file__).parent)
    if collection is None:
        raise GrapnelError("this installation has no grapnel.node collection", hint="reinstall grapnel")
    playbooks = Playbooks(
        collection=collection,
        inventory=fleet.inventories,
        check=check,
        environment=environment or {},
        offline=args.bundle is not None,
        mig_nodes=frozenset(node.name for node in fleet.nodes if node.stack.mig.layout is not None),
        kubelets={
            node.name: node.stack.node.kubelet.unit
            for node in fleet.nodes
            if declared_settings(node.stack.node.kubelet)
        },
        offline_nodes=frozenset(node.name for node in fleet.nodes if declared_bundle(node.stack.driver) is not None),
    )
    runner = AnsibleRunner(collection, args.keep_artifacts, args.most_artifacts, args.early)
    signers = signers_file(args, os.environ)
    bundle = None if args.bundle is None else open_bundle(args.bundle, os.environ, signers)
    stacks = {node.name: node.stack for node in fleet.nodes}
    if bundle is not None:
        stacks = {name: declare_carried(stack, bundle) for name, stack in stacks.items()}
    if args.force:
        stacks = {name: overwrite_edits(stack) for name, stack in stacks.items()}
    declarations = Declarations(stacks)
    asked = args.payload or (None if bundle is None else carried_payload(bundle))
    payload = store.load_payload(payload_folder(asked, os.environ, args.file))
    planner = BoundedPlanner(declarations, payload)
    return ApplyContext(
        runner=runner,
        plan=planner,
        playbooks=playbooks,
        declarations=declarations,
        bundle=bundle,
        bundles=Bundles(_bundles(os.environ), signers),
        shelf=open_shelf(fleet.inventories, os.environ),
        runfiles=open_runfiles(os.environ),
        endpoints=network_endpoints({node.name: node.endpoint for node in fleet.nodes}),
    )


def open_shelf(inventories: Iterable[str], environment: Mapping[str, str]) -> Shelf:
    """Return where modules are kept that a node of an inventory has built for others."""
    return Shelf(_cache(environment) / "built-modules" / inventory_key(inventories, Path.cwd()))


def open_runfiles(environment: Mapping[str, str]) -> Runfiles:
    """Return what makes packages of declared runfiles."""
    return Runfiles(_cache(environment) / "runfiles")


def _cache(environment: Mapping[str, str]) -> Path:
    home = Path(environment.get("HOME") or "~").expanduser()
    return Path(environment.get("XDG_CACHE_HOME") or home / ".cache") / "grapnel"


def carried_payload(bundle: Bundle) -> Path | None:
    """Return the payload in a bundle, None where it has none; raises BundleError for that of another grapnel."""
    listing = bundle.listing
    if not listing.payload:
        return None
    if listing.grapnel != provision.__version__:
        raise BundleError(
            f"the bundle has the payload of grapnel {listing.grapnel}, and this is grapnel {provision.__version__}",
            hint="name the payload that belongs to this one with --payload, or make the bundle with it",
        )
    return bundle.path(listing.payload)


def open_bundle(archive: Path, environment: Mapping[str, str], signers: Path | None = None) -> Bundle:
    """Return a bundle, unpacked into the user's cache, checked and verified; raises BundleError."""
    return read.open_bundle(archive, _bundles(environment), signers)


def _bundles(environment: Mapping[str, str]) -> Path:
    return _cache(environment) / "bundles"
