"""A whole `grapnel apply` that finds nothing to do, as a process of its own: writes down which modules it has imported.

Everything is real but the node: what it would answer is read from a file, and its plan is empty. Only what `apply`
itself imports is imported here.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from provision.apply.runner import RunFinished, RunStatus, TaskDone, TaskOutcome
from provision.cli import main
from provision.cli.change import apply
from provision.cli.session.context import build_context
from provision.planning.node_plan import NodePlan

if TYPE_CHECKING:
    import argparse
    import threading
    from collections.abc import Iterator, Mapping

    from provision.apply.context import ApplyContext
    from provision.apply.runner import Event, RunRequest
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.fleet.model import Fleet


class Answers:
    """Nodes that all answer the same."""

    def __init__(self, facts: bytes) -> None:
        self._facts = facts

    def run(self, request: RunRequest, _cancel: threading.Event) -> Iterator[Event]:
        for node in request.nodes:
            yield TaskDone(node, "gather facts", TaskOutcome.OK, values={"facts": self._facts})
        yield RunFinished(RunStatus.SUCCESSFUL)


class Verb:
    """`grapnel apply` with those nodes."""

    def __init__(self, facts: bytes) -> None:
        self._facts = facts

    def run(self, args: argparse.Namespace) -> int:
        return apply.run(args, self._build)

    def _build(
        self,
        args: argparse.Namespace,
        fleet: Fleet,
        *,
        check: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> ApplyContext:
        context = build_context(args, fleet, check=check, environment=environment)
        return replace(context, runner=Answers(self._facts), plan=_plan_nothing)


def _plan_nothing(node: str, _facts: NodeFacts, _cancel: threading.Event) -> NodePlan:
    return NodePlan(node=node)


if __name__ == "__main__":
    facts = Path(sys.argv[1]).read_bytes()
    code = main(sys.argv[3:], load=lambda _name: Verb(facts))
    Path(sys.argv[2]).write_text("\n".join(sys.modules))
    sys.exit(code)
