"""Renders which node builds a kernel module for which others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.report.console import Text
from provision.report.terminal import hanging, names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from provision.apply.kinds import Handing


def render_builds(builds: Sequence[Handing]) -> Iterator[RenderableType]:
    """Yield a line for each build that is made once for several nodes."""
    for number, one in enumerate(builds):
        if not number:
            yield ""
        about = Text(f" {one.how} {one.build}, handed to {names(list(one.receivers))}")
        yield hanging(Text.assemble(("modules: ", "bold"), (one.node, "bold cyan")), about)


def builds_document(builds: Sequence[Handing]) -> list[dict[str, object]]:
    """Return the same as JSON."""
    return [
        {
            "node": one.node,
            "how": one.how,
            "version": one.build.version,
            "flavour": one.build.flavour,
            "kernel": one.build.kernel,
            "receivers": list(one.receivers),
        }
        for one in builds
    ]
