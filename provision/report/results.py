"""Renders the result of each node as a table, with the output of what failed below it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table

from provision.apply.model import NodeResult, Status, Upgrade
from provision.report.console import Text
from provision.report.terminal import CELL_WIDTH, STATUS_STYLES, count, duration, hanging, names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

_NAME_WIDTH = 24
NEXT = "fix what is reported above, then run `{}` again: it begins there"
GO_ON = "run `{}` again: it goes on there"


def render_results(
    results: Sequence[NodeResult], elapsed_s: float, command: str = "grapnel apply"
) -> Iterator[RenderableType]:
    """Yield the table, the tails of failed tasks, and a line that counts. After a failure ``command`` goes on."""
    rolled_out = any(result.upgrade is not None for result in results)
    yield _table(results, rolled_out=rolled_out)
    if rolled_out:
        yield from _reasons(results)
    for result in results:
        if result.failure is not None and result.failure.tail:
            yield ""
            yield hanging(Text(f"{result.node}: ", "bold"), Text(f"output of '{result.failure.task}'", "bold"))
            for line in result.failure.tail:
                yield Padding(Text(line.expandtabs(), "dim"), (0, 0, 0, 2))
    out = [result for result in results if result.upgrade is not None and result.upgrade.is_out]
    interrupted = [result.node for result in out if result.status is Status.CANCELED]
    failed = [result.node for result in out if result.status is not Status.CANCELED]
    for nodes, todo in ((failed, NEXT), (interrupted, GO_ON)):
        if nodes:
            yield ""
            verb = "stays" if len(nodes) == 1 else "stay"
            yield Text(f"{names(nodes)} {verb} out of service: {todo.format(command)}", "yellow")
    back = [result.node for result in results if result.status is Status.RETURNED and not result.is_good]
    if back:
        yield ""
        yield Text(
            f"{names(back)} {'is' if len(back) == 1 else 'are'} in service with the former driver: fix what is "
            f"reported above, then run `{command}` again: it tries {'it' if len(back) == 1 else 'them'} again",
            "yellow",
        )
    yield ""
    yield Text(f"{summary(results)} in {duration(elapsed_s)}", "bold")


def summary(results: Sequence[NodeResult]) -> str:
    """Return ``3 nodes: 2 converged, 1 failed``."""
    counts = Counter(result.status for result in results)
    parts = [f"{counts[status]} {status.value}" for status in Status if counts[status]]
    return f"{count(len(results), 'node')}: {', '.join(parts)}"


def _reasons(results: Sequence[NodeResult]) -> Iterator[RenderableType]:
    """Yield why nodes are not as declared, and notes; the table has no room for them beside a rollout's columns."""
    alike: dict[str, list[str]] = {}
    for result in results:
        if result.failure is not None or result.note:
            alike.setdefault(_detail(result).plain, []).append(result.node)
    if alike:
        yield ""
    for reason, nodes in alike.items():
        yield hanging(Text(f"{names(nodes)}: ", "bold cyan"), Text(reason))


def _table(results: Sequence[NodeResult], *, rolled_out: bool) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    longest = max((len(result.node) for result in results), default=0)  # a narrow terminal must not lose the names
    table.add_column("node", overflow="fold", style="bold cyan", min_width=min(longest, _NAME_WIDTH))
    table.add_column("result", no_wrap=True)
    table.add_column("changes", no_wrap=True, justify="right")
    if rolled_out:
        table.add_column("driver", overflow="fold", max_width=CELL_WIDTH)
        table.add_column("out of service", justify="right")
    else:
        table.add_column("", overflow="fold")
    unchanged = [result.node for result in results if result.status is Status.UNCHANGED]
    alike: dict[tuple[object, ...], list[NodeResult]] = {}
    for result in results:
        if result.status is not Status.UNCHANGED:
            alike.setdefault(_looks(result, rolled_out=rolled_out), []).append(result)
    for those in alike.values():
        first = those[0]
        more = _way(first.upgrade) if rolled_out else (_detail(first),)
        who = names([result.node for result in those])
        table.add_row(who, _status(first.status, is_good=first.is_good), _changes(first), *more)
    if unchanged:
        table.add_row(names(unchanged), _status(Status.UNCHANGED))
    return table


def _looks(result: NodeResult, *, rolled_out: bool) -> tuple[object, ...]:
    """Return what nodes of one row have in common. What went wrong has a row for each node."""
    of_node = "" if result.is_good and not (rolled_out and result.upgrade) else result.node
    return result.status, result.is_good, _changes(result), _detail(result).plain, of_node


def _way(upgrade: Upgrade | None) -> tuple[str, str]:
    """Return the cells about a node's rollout: driver versions, and time out of service."""
    if upgrade is None:
        return "", ""
    versions = " → ".join(dict.fromkeys(version for version in (upgrade.origin, upgrade.target) if version))
    return versions, f"{duration(upgrade.out_of_service_s)}{' so far' if upgrade.is_out else ''}"


def _status(status: Status, *, is_good: bool = True) -> Text:
    return Text(status.value, STATUS_STYLES[status if is_good or not status.is_good else Status.FAILED])


def _changes(result: NodeResult) -> str:
    return str(result.changes) if result.passes else ""


def _detail(result: NodeResult) -> Text:
    if result.failure is None:
        return Text(result.note or (f"in {result.passes} passes" if result.passes > 1 else ""), "dim")
    task = f"{result.failure.task}: " if result.failure.task else ""
    return Text.assemble((task, "bold"), result.failure.message)
