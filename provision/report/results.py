"""Renders the result of each node as a table, with the output of what failed below it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rich.padding import Padding
from rich.table import Table

from provision.apply.model import Failure, NodeResult, Status, Upgrade
from provision.declaration.fleet.series import in_series
from provision.report.console import Text
from provision.report.planned.alike import in_common, without_name
from provision.report.terminal import CELL_WIDTH, NAMES_SHOWN, STATUS_STYLES, count, duration, hanging, names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import RenderableType

_NAME_WIDTH = 24
_MOST_NAMES: Final = 200  # of nodes that failed alike: some lines, and those after them are in `grapnel report`
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
    yield from _who(results, rolled_out=rolled_out)
    for failure, nodes in _tails(results):
        yield ""
        yield hanging(Text(f"{names(in_series(nodes))}: ", "bold"), Text(f"output of '{failure.task}'", "bold"))
        for line in failure.tail:
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
    alike: dict[str, list[NodeResult]] = {}
    for result in results:
        if result.failure is not None or result.note:
            alike.setdefault(_told(result), []).append(result)
    if alike:
        yield ""
    for those in alike.values():
        yield hanging(
            Text(f"{names(in_series([each.node for each in those]))}: ", "bold cyan"), Text(_detail_of(those).plain)
        )


def _tails(results: Sequence[NodeResult]) -> Iterable[tuple[Failure, list[str]]]:
    """Return what failed tasks printed, each with the nodes of which it is true: as the first of them printed it."""
    alike: dict[tuple[str, ...], tuple[Failure, list[str]]] = {}
    for result in results:
        if result.failure is not None and result.failure.tail:
            lines = (without_name(line, result.node) for line in result.failure.tail)
            alike.setdefault((result.failure.task, *lines), (result.failure, []))[1].append(result.node)
    return alike.values()


def _who(results: Sequence[NodeResult], *, rolled_out: bool) -> Iterator[RenderableType]:
    """Yield the names of nodes with the same failure, where the table has the first ones alone."""
    for those in _rows(results, rolled_out=rolled_out):
        listed = in_series([each.node for each in those])
        if len(listed) > NAMES_SHOWN and not those[0].is_good:
            more = len(listed) - _MOST_NAMES
            yield ""
            status = f"{count(len(those), 'node')} {those[0].status.value}: "
            told = ", ".join(listed[:_MOST_NAMES])
            yield hanging(Text(status, "bold"), Text(f"{told}{f' and {more} more' if more > 0 else ''}"))


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
    for those in _rows(results, rolled_out=rolled_out):
        first = those[0]
        more = _way(first.upgrade) if rolled_out else (_detail_of(those),)
        who = names(in_series([result.node for result in those]))
        table.add_row(who, _status(first.status, is_good=first.is_good), _changes(first), *more)
    if unchanged:
        table.add_row(names(in_series(unchanged)), _status(Status.UNCHANGED))
    return table


def _rows(results: Sequence[NodeResult], *, rolled_out: bool) -> Iterable[list[NodeResult]]:
    """Return the nodes of each row but that of those where nothing was to do."""
    alike: dict[tuple[object, ...], list[NodeResult]] = {}
    for result in results:
        if result.status is not Status.UNCHANGED:
            alike.setdefault(_looks(result, rolled_out=rolled_out), []).append(result)
    return alike.values()


def _looks(result: NodeResult, *, rolled_out: bool) -> tuple[object, ...]:
    """Return what nodes of one row have in common. A node that was taken out of service has a row of its own."""
    of_node = result.node if rolled_out and result.upgrade else ""
    return result.status, result.is_good, _changes(result), _told(result), of_node


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


def _told(result: NodeResult) -> str:
    """Return what is said of a result, in words that fit others as well."""
    return without_name(_detail(result).plain, result.node)


def _detail_of(alike: Sequence[NodeResult]) -> Text:
    """Return what is said of results that are alike: as it is, or in words that fit all of them."""
    failures = [(each.node, each.failure) for each in alike if each.failure is not None]
    return _detail(replace(alike[0], failure=in_common(failures)) if failures else alike[0])


def _detail(result: NodeResult) -> Text:
    if result.failure is None:
        return Text(result.note or (f"in {result.passes} passes" if result.passes > 1 else ""), "dim")
    task = f"{result.failure.task}: " if result.failure.task else ""
    return Text.assemble((task, "bold"), result.failure.message)
