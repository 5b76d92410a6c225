"""`grapnel status`: shows how the upgrade of a fleet stands, from outside; changes nothing."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from provision.base.errors import ExitCode, GrapnelError, UsageError
from provision.cli.look.report import read_report
from provision.cli.look.serve import serve
from provision.cli.parsers.options import DECLARATION
from provision.cli.session.fleet import fleet_words, inventories_of, load_fleet, named_nodes
from provision.cli.session.scope import cluster_words
from provision.cluster import LocalCluster, Machine, open_api, state_file_path
from provision.cluster.kubernetes.usage import Usage
from provision.cluster.members import IN_KUBERNETES, open_members
from provision.cluster.mixed_reader import MixedReader
from provision.cluster.reader import KubernetesReader, StateFileReader
from provision.controller.stacks.reader import see_stacks
from provision.declaration.fleet.resolve import resolve_nodes
from provision.declaration.fleet.sources import inventory_key
from provision.declaration.spec.model import SchedulerKind
from provision.declaration.spec.validate import nearest
from provision.report.console import make_console
from provision.report.documents.status import status_document
from provision.report.history import render_history
from provision.report.progress.watching import watch
from provision.report.runs.history import RUNS, history_of, last_words
from provision.report.runs.remedies import BARE, Invocation
from provision.report.runs.store import Shelf, runs_folder
from provision.report.status import render_node_status, render_status
from provision.report.terminal import show
from provision.rollout.errors import UnreachableError
from provision.rollout.status.derive import fleet_status
from provision.rollout.status.words import cells_of, used_on, with_last_runs

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from provision.declaration.fleet.model import Fleet, FleetNode
    from provision.declaration.spec.model import Driver, Plugin
    from provision.report.progress.watching import Drawing, Picture
    from provision.report.runs.history import History
    from provision.rollout.status.model import FleetStatus, Reader, Seen

FOLLOW_S: Final = 2.0
RUNS_S: Final = 60.0  # between two looks at the runs that are kept


def run(args: argparse.Namespace) -> int:
    """Read node state and show it; return 1 if a node needs an administrator."""
    reader, named = open_reader(args)
    invocation = invocation_of(args)
    if args.serve is not None:
        say, runs = (lambda line: print(line, flush=True)), (lambda: last_words(read_history(args)))
        return serve(args, reader, say, invocation, runs)
    if args.watch:
        return watch_status(reader, named, invocation, lambda: read_history(args))
    return show_status(reader, named, as_json=args.json, history=read_history(args), invocation=invocation)


def invocation_of(args: argparse.Namespace) -> Invocation:
    """Return how the command was called, for commands that are offered to find the same nodes."""
    return Invocation((*fleet_words(args), *cluster_words(args)), args.limit)


def read_history(args: argparse.Namespace) -> History:
    """Return what the runs that are kept for the inventory left behind, nothing where there is none."""
    shelf = Shelf(runs_folder(os.environ, inventory_key(inventories_of(args), Path.cwd())))
    reports = []
    for folder in shelf.runs()[:RUNS]:
        with contextlib.suppress(GrapnelError):  # a run that cannot be read says nothing of how nodes stand
            reports.append(read_report(folder, details=False))
    return history_of(reports)


@dataclass(frozen=True, slots=True)
class DeclaredReader:
    """Reads what another reader does, and knows what a file declares; a GpuStack of the cluster is the later word."""

    reader: Reader
    declared: Mapping[str, Driver]
    daemons: Mapping[str, Plugin]

    def look(self) -> Seen:
        """Return what is true now. Raises ClusterError."""
        return self._added_to(self.reader.look())

    def follow(self, timeout_s: float) -> Seen:
        """Return what is true after a while."""
        return self._added_to(self.reader.follow(timeout_s))

    def _added_to(self, seen: Seen) -> Seen:
        return replace(seen, declared={**self.declared, **seen.declared}, daemons={**self.daemons, **seen.daemons})


def open_reader(args: argparse.Namespace) -> tuple[Reader, tuple[str, ...]]:
    """Return what reads the nodes of the inventory, or without one all of the cluster that have a record, and names.

    Names are those of the Nodes that are asked for, none for all that are read: of a single one, everything is shown.
    """
    if args.no_cluster and (args.kubeconfig or args.context):
        raise UsageError("--no-cluster cannot be combined with --kubeconfig or --context", hint="leave one of them out")
    if not args.no_cluster and _has_no_inventory(args):
        api = open_api(args.kubeconfig, args.context, os.environ)
        if api is not None:
            named = tuple(dict.fromkeys(named_nodes(args)))
            nodes = None if args.serve is None else named or None
            read = KubernetesReader(api, nodes, {}, stacks=see_stacks, usage=Usage(api), pods_of=_only(args, named))
            return read, named
    fleet = load_fleet(args)
    named = (fleet.nodes[0].name,) if args.limit and len(fleet.nodes) == 1 else ()
    drivers = {node.name: node.stack.driver for node in fleet.nodes}
    daemons = {node.name: node.stack.plugin for node in fleet.nodes}
    return DeclaredReader(_fleet_reader(args, fleet, _only(args, named)), drivers, daemons), named


def _fleet_reader(args: argparse.Namespace, fleet: Fleet, pods_of: str | None) -> Reader:
    if args.no_cluster:
        return _state_file_reader(fleet, fleet.nodes, None)
    theirs = [node for node in fleet.nodes if node.stack.scheduler.kind in IN_KUBERNETES]
    api = open_api(args.kubeconfig, args.context, os.environ) if theirs or not fleet.nodes else None
    is_local = api is None and all(node.stack.scheduler.kind is not SchedulerKind.SLURM for node in fleet.nodes)
    addresses = {} if is_local else resolve_nodes(fleet.nodes)
    machines = {name: Machine(addresses=each) for name, each in addresses.items()}
    if api is None:
        return _state_file_reader(fleet, fleet.nodes, machines)
    kubernetes = KubernetesReader(
        api,
        [node.name for node in theirs],
        machines,
        stacks=see_stacks,
        daemons={node.name: node.stack.plugin for node in theirs},
        usage=Usage(api),
        pods_of=pods_of,
    )
    others = [node for node in fleet.nodes if node not in theirs]
    if not others:
        return kubernetes
    return MixedReader([_state_file_reader(fleet, others, machines), kubernetes], [node.name for node in fleet.nodes])


def _only(args: argparse.Namespace, named: Sequence[str]) -> str | None:
    """Return the node of which all is wanted: the only one that is named, unless nodes are served."""
    return named[0] if len(named) == 1 and args.serve is None else None


def _state_file_reader(
    fleet: Fleet, nodes: Sequence[FleetNode], machines: Mapping[str, Machine] | None
) -> StateFileReader:
    """Return what reads the inventory's state file; without ``machines``, no scheduler is asked."""
    path = state_file_path(inventory_key(fleet.inventories, Path.cwd()), os.environ)
    names = [node.name for node in nodes]
    if machines is None:
        return StateFileReader(path, names)
    journal = LocalCluster(path)
    stacks = {node.name: node.stack for node in nodes}
    cluster = open_members(stacks, lambda: journal, journal=journal, machines=machines, environ=os.environ)
    return StateFileReader(path, names, scheduled=None if cluster is journal else cluster)


def _has_no_inventory(args: argparse.Namespace) -> bool:
    """Tell whether the command is run where there is nothing to select nodes by, as without a project."""
    return args.file == DECLARATION and not args.file.exists() and not inventories_of(args)


def show_status(
    reader: Reader,
    named: Sequence[str] = (),
    *,
    as_json: bool,
    history: History | None = None,
    invocation: Invocation = BARE,
) -> int:
    """Show what is read; return 0 if everything gets on by itself, 1 if a node needs somebody."""
    status = _about(with_last_runs(fleet_status(reader.look()), last_words(history)), named)
    if as_json:
        print(status_document(status, history, invocation))
    else:
        show(make_console(sys.stdout), _picture(status, named, invocation, history))
        if history is not None and len(named) != 1:
            names = [each.name for each in status.nodes]
            show(make_console(sys.stdout), render_history(history, names, status.seen.time))
    return _exit_code(status)


def watch_status(
    reader: Reader,
    named: Sequence[str] = (),
    invocation: Invocation = BARE,
    runs: Callable[[], History] | None = None,
) -> int:
    """Show what is read as it changes, until the upgrade has ended or the user leaves; return as `show_status` does."""
    watching = _Watching(reader, named, invocation, runs or (lambda: None))
    watching.take(reader.look())
    with contextlib.suppress(KeyboardInterrupt):  # the ordinary way to leave it
        watch(make_console(sys.stdout), watching.pictures())
    return _exit_code(watching.status)


def _exit_code(status: FleetStatus) -> int:
    return ExitCode.FAILED if status.needs_somebody else ExitCode.DONE


class _Watching:
    """What was seen last, with the runs that are kept, which are looked at once a minute."""

    def __init__(
        self, reader: Reader, named: Sequence[str], invocation: Invocation, runs: Callable[[], History | None]
    ) -> None:
        self._reader, self._named, self._invocation, self._runs = reader, named, invocation, runs
        self._history: History | None = None
        self._runs_read: datetime | None = None
        self.status: FleetStatus

    def take(self, seen: Seen) -> None:
        """Take note of what was seen."""
        if self._runs_read is None or (seen.time - self._runs_read).total_seconds() >= RUNS_S:
            self._runs_read, self._history = seen.time, self._runs()
        status = with_last_runs(fleet_status(seen), last_words(self._history))
        self.status = _about(status, self._named)

    def pictures(self) -> Iterator[Picture]:
        """Yield pictures until an engine that was seen at work is gone."""
        was_at_work = False
        while True:
            yield self._said(), _picture(self.status, self._named, self._invocation, self._history)
            if was_at_work and not self.status.is_at_work:
                return
            was_at_work = was_at_work or self.status.is_at_work
            try:
                self.take(self._reader.follow(FOLLOW_S))
            except UnreachableError as error:
                complaint = f"{error.message}: trying again; this is what was seen last"
                self.status = replace(self.status, seen=replace(self.status.seen, complaints=(complaint,)))

    def _said(self) -> object:
        """Return what makes a picture another one: everything but the times that pass."""
        seen, last = self.status.seen, last_words(self._history)
        nodes = tuple(
            (node.name, node.situation.key, node.since, node.reason, cells_of(node), used_on(node), last.get(node.name))
            for node in self.status.nodes
        )
        at_work = None if seen.tenant is None else (seen.tenant.holder, seen.tenant.is_at_work)
        return at_work, nodes, seen.pause, seen.complaints


def _picture(
    status: FleetStatus, named: Sequence[str], invocation: Invocation, history: History | None = None
) -> Drawing:
    if len(named) != 1:
        return tuple(render_status(status, invocation, history))
    return tuple(render_node_status(status, named[0], invocation, history))


def _about(status: FleetStatus, named: Sequence[str]) -> FleetStatus:
    """Return the status of the nodes that are named, of all where none is; raises UsageError for an unknown one."""
    known = {each.name: each for each in status.nodes}
    for name in named:
        if name not in known:
            near = nearest(name, list(known))
            hint = f"did you mean {near}?" if near else "`grapnel status` shows all"
            raise UsageError(f"{name} is not a node of {status.seen.place}", hint=hint)
    return replace(status, nodes=tuple(known[name] for name in named)) if named else status
