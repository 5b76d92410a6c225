"""Renders how a fleet differs from its declaration: equal differences once, with their nodes and what mends them."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Final

from provision.declaration.fleet.series import in_series
from provision.planning.drift import DriftKind
from provision.planning.node_plan import Disruption
from provision.report.console import Text
from provision.report.mending import mending
from provision.report.planned.alike import failed_alike, without_names
from provision.report.terminal import DISRUPTION_STYLES, STATUS_STYLES, count, hanging, names, short

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from provision.apply.model import Failure
    from provision.planning.drift import Case, Comparison, Difference

CASES_SHOWN: Final = 40  # so that nodes that all say something else do not fill the screen
ORIGINS_SHOWN: Final = 4  # of one difference
_INDENT: Final = 2
_TOLD: Final = frozenset(
    {DriftKind.VERSION, DriftKind.SOFTWARE, DriftKind.MODULE, DriftKind.MIG}
)  # where values say more than the reason
_COSTS: Final = {
    Disruption.RELOAD: "reloads the engine",
    Disruption.RESTART_RUNTIME: "restarts the container engine",
    Disruption.CHANGE_OVER: "gives GPUs by another interface, node by node",
    Disruption.DRAIN: "takes nodes out of service",
    Disruption.REBOOT: "takes nodes out of service, and reboots them",
}


def render_drift(seen: Comparison, failures: Mapping[str, Failure], apply: Sequence[str]) -> Iterator[RenderableType]:
    """Yield a block for each difference, the nodes that could not be compared, and a summary line.

    ``apply`` are the words of the command that mends the whole fleet; a block names its nodes behind them.
    """
    for case in seen.cases[:CASES_SHOWN]:
        yield from _case(case, apply)
        yield ""
    if rest := seen.cases[CASES_SHOWN:]:
        others = {node for case in rest for node in case.nodes}
        yield Text(f"and {count(len(rest), 'more difference')} on {count(len(others), 'node')}: --json has all", "dim")
        yield ""
    yield from _unknown(seen, failures)
    yield Text(_summary(seen, failures), "bold")


def _case(case: Case, apply: Sequence[str]) -> Iterator[RenderableType]:
    difference = case.difference
    yield hanging(Text(f"{difference.kind.value}: ", "bold yellow"), Text(difference.reason, "bold"))
    of = (f"{count(len(case.nodes), 'node')}: ", "dim")
    yield hanging(_INDENT, Text.assemble(of, (names(in_series(case.nodes)), "cyan")))
    for line in _told(difference) if difference.kind in _TOLD else _unnamed(difference):
        yield hanging(_INDENT, Text(line))
    for line in _came_from(case):
        yield hanging(_INDENT, Text.assemble(("since: ", "cyan"), line))
    cost = (f"  ({_COSTS[case.disruption]})" if case.disruption in _COSTS else "", DISRUPTION_STYLES[case.disruption])
    yield hanging(_INDENT, Text.assemble(("mend: ", "green"), mending(apply, case.nodes, force=case.needs_force), cost))


def _unnamed(difference: Difference) -> Iterator[str]:
    """Yield what a reason is about, where it does not say so itself."""
    unnamed = [subject.name for subject in difference.subjects if subject.name not in difference.reason]
    if unnamed and difference.kind is not DriftKind.HOLD:  # its reason has the packages
        yield names(unnamed)


def _told(difference: Difference) -> Iterator[str]:
    """Yield a line for all subjects of the same values: `libcuda1 is 550.1, declared 550.2`."""
    alike: dict[tuple[str | None, str | None], list[str]] = defaultdict(list)
    for subject in difference.subjects:
        if subject.found != subject.declared:
            alike[subject.found, subject.declared].append(subject.name)
    for (found, declared), those in alike.items():
        is_are = "is" if len(those) == 1 else "are"
        wanted = "" if declared is None else f", declared {short(declared)}"
        yield f"{names(those)} {is_are} {'absent' if found is None else short(found)}{wanted}"


def _came_from(case: Case) -> Iterator[str]:
    """Yield how the nodes came to differ, what was done alike once; which nodes, where it is not all of them."""
    alike: dict[str, dict[str, int]] = defaultdict(dict)
    for node, origins in case.origins.items():
        for origin in origins:
            alike[origin.says][node] = origin.time
    ranked = sorted(alike.items(), key=lambda entry: -len(entry[1]))
    for says, times in ranked[:ORIGINS_SHOWN]:
        where = "" if len(times) == len(case.nodes) else f" ({names(in_series(list(times)))})"
        yield f"{_moments(times.values())}, {says}{where}"
    if len(ranked) > ORIGINS_SHOWN:
        yield f"and {len(ranked) - ORIGINS_SHOWN} others: --json has all"


def _moments(times: Collection[int]) -> str:
    first, last = moment(min(times)), moment(max(times))
    return first if first == last else f"{first} to {last}"


def moment(seconds: int) -> str:
    """Return a time that a node gave, in UTC."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def _unknown(seen: Comparison, failures: Mapping[str, Failure]) -> Iterator[RenderableType]:
    """Yield what kept nodes from being compared as a whole, the same words once."""
    found: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for failure, nodes in failed_alike(failures.items()):
        where = f" in '{failure.task}'" if failure.task else ""
        found[failure.status.value + where, STATUS_STYLES[failure.status], failure.message, ""] += nodes
    for node, problems in seen.problems.items():
        for problem in problems:
            found[problem.code, "bold red", without_names(problem.message, {node}), problem.hint].append(node)
    for (title, style, message, hint), nodes in islice(found.items(), CASES_SHOWN):
        yield hanging(Text.assemble((f"{title}: ", style)), Text(names(in_series(nodes)), "bold cyan"))
        yield hanging(_INDENT, Text(message))
        if hint:
            yield hanging(_INDENT, Text.assemble(("hint: ", "cyan"), hint))
    if len(found) > CASES_SHOWN:
        yield Text(f"and {count(len(found) - CASES_SHOWN, 'more reason')}: --json has all", "dim")
    if found:
        yield ""


def _summary(seen: Comparison, failures: Mapping[str, Failure]) -> str:
    unknown = len(seen.problems) + len(failures)
    total = len(seen.as_declared) + len(seen.drifted) + unknown
    parts = [f"{len(seen.as_declared)} as declared"] if seen.as_declared else []
    parts += [f"{len(seen.drifted)} drifted"] if seen.drifted else []
    parts += [f"{unknown} could not be compared"] if unknown else []
    return f"{count(total, 'node')}: {', '.join(parts) or 'nothing to compare'}"
