"""Renders how files change by plans: equal changes once, with the nodes that have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.apply.model import Failure
from provision.declaration.fleet.series import in_series
from provision.planning.planner.file_changes import file_changes
from provision.report.console import Text
from provision.report.terminal import count, hanging, names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from provision.planning.planner.file_changes import FileChange
    from provision.report.planned.plans import Answers

LINES: Final = 60  # of one file on a terminal
_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}
_INDENT: Final = 2


def changed_files(answers: Answers) -> list[tuple[FileChange, tuple[str, ...]]]:
    """Return each distinct change of a file, with its nodes, by path; plans with problems are not carried out."""
    found: dict[FileChange, list[str]] = {}
    for node, answer in answers.items():
        if not isinstance(answer, Failure) and not answer.plan.problems:
            for change in file_changes(answer.plan, answer.facts):
                found.setdefault(change, []).append(node)
    ranked = sorted(found.items(), key=lambda entry: (entry[0].path, -len(entry[1])))
    return [(change, tuple(nodes)) for change, nodes in ranked]


def diffs_document(answers: Answers) -> list[dict[str, object]]:
    """Return ``[{path, nodes, modeBefore, mode, withheld, reason, diff: [line]}]``."""
    return [
        {
            "path": change.path,
            "nodes": list(nodes),
            "modeBefore": change.mode_before,
            "mode": change.mode,
            "withheld": change.withheld,
            "reason": change.reason or None,
            "diff": list(change.diff),
        }
        for change, nodes in changed_files(answers)
    ]


def render_diffs(answers: Answers) -> Iterator[RenderableType]:
    """Yield the files, or that there are none."""
    found = changed_files(answers)
    for change, nodes in found:
        of = f"  {count(len(nodes), 'node')}: {names(in_series(nodes))}"
        yield hanging(Text.assemble((_verb(change), "bold"), " "), Text.assemble((change.path, "bold"), (of, "dim")))
        if change.withheld:
            yield hanging(_INDENT, Text(f"not shown: {change.reason}", "yellow"))
        for line in change.diff[2:LINES]:  # without the names of the files, which were said
            yield hanging(_INDENT, Text(line.expandtabs(), _STYLES.get(line[:1], "dim")))
        if rest := change.reason if not change.withheld else "":
            yield hanging(_INDENT, Text(rest, "dim"))
        elif len(change.diff) > LINES:
            yield hanging(_INDENT, Text(f"{len(change.diff) - LINES} more lines: --json has them", "dim"))
        yield ""
    if not found:
        yield Text("no file would be written or taken away now", "dim")
        yield ""


def _verb(change: FileChange) -> str:
    if change.mode is None:
        return "remove"
    if change.mode_before is None:
        return "new"
    if int(change.mode_before, 8) != int(change.mode, 8):
        return f"change (mode {change.mode_before} → {change.mode})"
    return "change"
