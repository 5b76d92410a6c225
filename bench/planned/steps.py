"""``python -m bench.planned.steps STEP NODES``: does one step over a fleet and prints the seconds of CPU.

What the step is given is made before the clock starts. Its memory is that of the process, which its parent reads.
"""

from __future__ import annotations

import io
import resource
import sys
import threading
from typing import TYPE_CHECKING, Final

from bench.planned.fleet import PAYLOAD, STACK, assessed, different, recorded, without_engine
from provision.apply.declarations import Declarations
from provision.apply.planner_process.bounded import BoundedPlanner
from provision.declaration.fleet.facts.node import parse_facts
from provision.planning.planner.plan import plan_node
from provision.report.console import make_console
from provision.report.documents.plans import plans_document
from provision.report.planned.plans import render_plans
from provision.report.terminal import show

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from provision.apply.model import Assessment


def facts_alone(nodes: int) -> Callable[[], object]:
    """Parse the facts and forget them: the floor."""
    return lambda: [parse_facts(text, node=name).node.hostname for name, text in recorded(nodes)]


def plans(nodes: int) -> Callable[[], object]:
    """Parse the facts and keep the plans."""
    return lambda: [
        plan_node(parse_facts(text, node=name), STACK, PAYLOAD, name=name) for name, text in recorded(nodes)
    ]


def plans_within_limits(nodes: int) -> Callable[[], object]:
    """Plan as `grapnel plan` does: in a process with limits."""

    def work() -> None:
        planner = BoundedPlanner(Declarations({name: STACK for name, _ in recorded(nodes)}), PAYLOAD)
        kept = [planner(name, parse_facts(text, node=name), threading.Event()) for name, text in recorded(nodes)]
        planner.worker.end()
        assert len(kept) == nodes

    return work


def kept(nodes: int) -> Callable[[], object]:
    """Keep facts and plans of all nodes, as the command does until its end."""
    return lambda: assessed(nodes)


def text_of(answers: Mapping[str, Assessment]) -> Callable[[], object]:
    """Render the overview as a person reads it."""
    return lambda: show(make_console(io.StringIO()), render_plans(answers))


def json_of(answers: Mapping[str, Assessment]) -> Callable[[], object]:
    """Render what scripts read."""
    return lambda: plans_document(answers)


STEPS: Final[Mapping[str, Callable[[int], Callable[[], object]]]] = {
    "facts": facts_alone,
    "plans": plans,
    "within-limits": plans_within_limits,
    "kept": kept,
    "text-equal": lambda nodes: text_of(assessed(nodes)),
    "text-named": lambda nodes: text_of(without_engine(nodes)),
    "text-different": lambda nodes: text_of(different(nodes)),
    "json": lambda nodes: json_of(assessed(nodes)),
}


def cpu_s() -> float:
    """Return the CPU time of this process and of its terminated children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> int:
    """Do one step and print its CPU time."""
    work = STEPS[sys.argv[1]](int(sys.argv[2]))
    spent = cpu_s()
    result = work()
    print(f"{cpu_s() - spent:.4f}")
    del result
    return 0


if __name__ == "__main__":
    sys.exit(main())
