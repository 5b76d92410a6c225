"""Renders which nodes build a kernel module for which others, and what that costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.apply.supply.kinds import DIFFERING, DRAWN
from provision.report.console import Text
from provision.report.terminal import hanging, names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from provision.apply.supply.kinds import Handing


def render_builds(builds: Sequence[Handing]) -> Iterator[RenderableType]:
    """Yield a line for each build that nodes are handed, or are not because two of them differ."""
    for number, one in enumerate(builds):
        if not number:
            yield ""
        yield hanging(Text.assemble(("modules: ", "bold"), (names(list(one.nodes)), "bold cyan")), Text(_about(one)))


def _about(one: Handing) -> str:
    to = names(list(one.receivers))
    count = "1 build" if one.builds == 1 else f"{one.builds} builds"
    if one.how == DIFFERING:
        return f" have built different modules of {one.build}; it is handed to nobody, so {to} build their own: {count}"
    if one.how == DRAWN:
        who = "two of them, drawn by chance, build" if one.builds > 1 else "one of them, drawn by chance, builds"
        same = "if both come to the same" if one.builds > 1 else f"if it is what {names(list(one.compared_with))} built"
        return f": {who} {one.build}; {same}, the others are handed it: {count} instead of {len(one.receivers)}"
    return f" {one.how} {one.build}, handed to {to}"


def builds_document(builds: Sequence[Handing]) -> list[dict[str, object]]:
    """Return the same as JSON."""
    return [
        {
            "nodes": list(one.nodes),
            "how": one.how,
            "version": one.build.version,
            "flavour": one.build.flavour,
            "kernel": one.build.kernel,
            "receivers": list(one.receivers),
            "builds": one.builds,
        }
        for one in builds
    ]
