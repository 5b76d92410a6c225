"""Carries out a change of the fleet: machines locked, written down, asked for, followed and told."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from provision.apply.interrupt import cancel_on_signals
from provision.apply.lock import APPLY_VARIABLE, Claim, lock_machines
from provision.apply.model import Status
from provision.base.errors import ExitCode, GrapnelError, UsageError
from provision.cli.session.context import build_context
from provision.cli.session.listening import open_listeners
from provision.cli.session.recording import recorded
from provision.cli.session.scope import open_scope
from provision.cli.terminal import outlasting, person, print_error, say
from provision.declaration.fleet.resolve import resolve_nodes
from provision.declaration.spec.text.excerpt import few
from provision.report.console import make_console
from provision.report.results import render_results
from provision.report.terminal import show
from provision.rollout.adapters import Adapters
from provision.rollout.gates import GateKeeper
from provision.rollout.interface.cluster import NodeProblem

if TYPE_CHECKING:
    import argparse
    import threading
    from collections.abc import Callable, Mapping, Sequence

    from provision.apply.context import ApplyContext
    from provision.apply.model import NodeResult
    from provision.cli.session.context import ContextBuilder
    from provision.cli.session.recording import Run
    from provision.cli.session.scope import Scope
    from provision.declaration.fleet.model import Fleet
    from provision.declaration.spec.model import QueryGate
    from provision.report.notify.listeners import Listeners
    from provision.rollout.interface.pause import Pause
    from provision.rollout.interface.progress import RolloutObserver
    from provision.rollout.step import Steps

T = TypeVar("T")


def require_consent(args: argparse.Namespace, verb: str) -> None:
    """Raise where a person would have to be asked, and none can be."""
    if not args.yes and not sys.stdin.isatty():
        raise UsageError(
            f"{verb} asks before it changes machines, and standard input is not a terminal", hint="add --yes"
        )


def change_fleet(
    args: argparse.Namespace,
    fleet: Fleet,
    verb: str,
    work: Callable[[ApplyContext, Scope, Run], int],
    *,
    build: ContextBuilder | None = None,
    check: bool = False,
    all_pods: bool = False,
) -> int:
    """Have a verb work on a fleet whose machines are locked, and written down what it does; return its exit code."""
    addresses = resolve_nodes(fleet.nodes)
    with lock_machines(claim_of(fleet, addresses), os.environ) as environment:

        def opened(run: Run) -> int:
            context = (build or build_context)(args, fleet, check=check, environment=environment)
            scope = open_scope(args, fleet, context.declarations.stacks, addresses, all_pods=all_pods)
            return work(context, replace(scope, metrics_file=vars(args).get("metrics_file")), run)

        return recorded(args, fleet, verb, opened)


class FleetChange:
    """A change of nodes where people read of it: asked for, followed to its end, told."""

    def __init__(self, context: ApplyContext, scope: Scope, record: Run) -> None:
        self._context, self._scope, self._record = context, scope, record
        self.console, self._began = make_console(outlasting(record.people)), time.monotonic()
        self._listeners: Listeners | None = None

    def is_wanted(self, question: str, *, consent: bool) -> bool:
        """Ask unless there is consent; the time that an answer takes is not the change's."""
        if consent:
            return True
        asked = time.monotonic()
        print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)  # seen even when the plans go to a file
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            self._record.declined()
            self.console.print("nothing was changed")
            return False
        self._began += time.monotonic() - asked
        return True

    def carry_out(
        self,
        steps: Steps,
        nodes: Sequence[str],
        act: Callable[[Adapters, RolloutObserver, threading.Event], T],
        gates: Sequence[QueryGate] = (),
    ) -> T:
        """Return what ``act`` comes to, through an engine's adapters and before all who listen."""
        scope, keeper = self._scope, GateKeeper(gates)
        self._listeners = open_listeners(scope, holder=holder_of(self._context), metrics_file=scope.metrics_file)
        adapters = Adapters(
            cluster=scope.cluster,
            steps=steps,
            clock=scope.clock,
            poll_s=scope.poll_s,
            publish=self._listeners.see,
            gates=keeper,
        )
        with cancel_on_signals() as cancel, self._record.view(self.console, nodes) as view, keeper:
            done = act(adapters, self._record.observing(self._listeners.observing(view)), cancel)
        if nodes:
            self.console.print()
        return done

    def tell(
        self, results: Sequence[NodeResult], complaints: Sequence[GrapnelError] = (), command: str = "grapnel apply"
    ) -> int:
        """Show what became of every node, and what else went wrong; return the exit code."""
        elapsed_s = time.monotonic() - self._began
        self._record.results(results, elapsed_s)
        show(self.console, render_results(results, elapsed_s, command))
        for complaint in complaints:
            print_error(complaint)
        for untold in self._listeners.close() if self._listeners is not None else ():
            say(f"· {untold}", sys.stderr)
        return exit_code(results) or (ExitCode.FAILED if complaints else ExitCode.DONE)


def claim_of(fleet: Fleet, addresses: Mapping[str, frozenset[str]]) -> Claim:
    """Return the machines of a fleet, for which other applies have to wait."""
    inventory = ", ".join(fleet.inventories) or "the inventory of ansible.cfg"
    machines = {node.name: node.endpoint.spellings(addresses[node.name]) for node in fleet.nodes}
    return Claim(inventory, machines, person())


def find_pause(scope: Scope) -> Pause | None:
    """Return the pause, having said what is done in spite of it; raise where that is nothing.

    Nodes that are out of service already are brought to their end: a pause must not leave them so.
    """
    pause = scope.cluster.paused()
    if pause is None:
        return None
    views = scope.cluster.observe(tuple(scope.stacks)).values()
    flying = [
        view.name
        for view in views
        if not isinstance(view, NodeProblem) and view.record is not None and not view.record.phase.is_over
    ]
    if not flying:
        raise GrapnelError(
            f"upgrades are paused {pause}",
            hint="`grapnel resume` ends it; `grapnel status` shows how the nodes stand. Nothing was changed",
        )
    begun = f"what was begun on {few(flying)} is finished, and nothing else is changed"
    say(f"upgrades are paused {pause}; {begun}", sys.stderr)
    return pause


def holder_of(context: ApplyContext) -> str:
    """Return the holder of the lease: the same name for the same machines, so that after a crash none has to wait.

    Two that run at once never have the same one: the lock keeps them apart.
    """
    lock = Path(context.playbooks.environment.get(APPLY_VARIABLE, "apply")).stem
    return f"{person()}/{lock}"


def exit_code(results: Sequence[NodeResult]) -> int:
    """Return 0 when every node is where it should be, 130 when it was interrupted, else 1."""
    if all(result.is_good for result in results):
        return ExitCode.DONE
    canceled = any(result.status is Status.CANCELED for result in results)
    return ExitCode.INTERRUPTED if canceled else ExitCode.FAILED
