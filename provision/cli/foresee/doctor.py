"""`grapnel doctor`: shows what would make driver changes fail, for all nodes together; changes nothing."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from provision.apply.converge import assess
from provision.apply.interrupt import cancel_on_signals
from provision.apply.model import Failure
from provision.base.errors import ExitCode
from provision.cli.session.context import build_context
from provision.cli.session.fleet import load_fleet
from provision.planning.driver.preflight import Finding, Severity, findings
from provision.planning.products.recognise import problem_of, recognise
from provision.report.console import make_console
from provision.report.doctor import doctor_document, render_diagnoses
from provision.report.progress.live import open_view
from provision.report.terminal import show

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from provision.apply.context import ApplyContext
    from provision.apply.model import Assessment
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec
    from provision.planning.node_plan import NodePlan


def run(args: argparse.Namespace) -> int:
    """Gather facts, look for trouble, and show it."""
    fleet = load_fleet(args)
    context = build_context(args, fleet)
    return show_findings(context, context.declarations.stacks, as_json=args.json)


def show_findings(context: ApplyContext, stacks: Mapping[str, StackSpec], *, as_json: bool) -> int:
    """Print what is found on the nodes; return 1 if a node has errors or could not be looked at."""
    with cancel_on_signals() as cancel, open_view(make_console(sys.stderr), tuple(stacks), time.monotonic) as view:
        answers = assess(context, stacks, view, cancel)
    diagnoses = {
        node: answer if isinstance(answer, Failure) else examine(answer, stacks[node])
        for node, answer in answers.items()
    }
    if as_json:
        print(doctor_document(diagnoses))
    else:
        show(make_console(sys.stdout), render_diagnoses(diagnoses))
    return ExitCode.DONE if all(map(is_well, diagnoses.values())) else ExitCode.FAILED


def examine(answer: Assessment, stack: StackSpec) -> tuple[Finding, ...]:
    """Return what is found on one node: before its driver change, and while it was planned."""
    variables = answer.plan.roles.driver
    change = variables.driver_change if variables is not None else None
    found = findings(answer.facts, stack.driver, change)
    known = {one.code for one in found}  # planning finds some of it too, in words about this node
    found = (*found, *(one for one in _of_plan(answer.plan) if one.code not in known))
    known = {one.code for one in found}
    return (*found, *(one for one in _of_products(answer.facts) if one.code not in known))


def _of_plan(plan: NodePlan) -> Iterator[Finding]:
    """Yield the problems and warnings of a plan as findings."""
    for severity, problems in ((Severity.ERROR, plan.problems), (Severity.WARNING, plan.warnings)):
        for problem in problems:
            yield Finding(code=problem.code, severity=severity, message=problem.message, remedy=problem.hint)


def _of_products(facts: NodeFacts) -> Iterator[Finding]:
    """Yield other products on a node, also where its plan has nothing to do beside them."""
    for problem in map(problem_of, recognise(facts)):
        yield Finding(code=problem.code, severity=Severity.INFO, message=problem.message, remedy=problem.hint)


def is_well(diagnosis: tuple[Finding, ...] | Failure) -> bool:
    """Tell whether nothing stands in the way of a driver change on a node."""
    return not isinstance(diagnosis, Failure) and all(one.severity is not Severity.ERROR for one in diagnosis)
