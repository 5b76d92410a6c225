"""Progress on a terminal: a line per running node that moves, finished nodes scroll up and stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from rich.console import Group
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from provision.apply.model import NodeFinished, PassStarted
from provision.report.plain import PlainView
from provision.report.terminal import STATUS_STYLES, count, duration, names, task_name
from provision.runner import TaskDone

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console, RenderableType

    from provision.apply.model import NodeResult, Progress
    from provision.runner import TaskStarted

Clock = Callable[[], float]


class View(AbstractContextManager["View"], Protocol):
    """Shows progress while it is open."""

    def __call__(self, progress: Progress) -> None:
        """Show what has happened."""


@dataclass(slots=True)
class _Line:
    """What a node is doing."""

    since: float
    task: str = ""
    number: int = 1
    done: int = 0


class LiveView:
    """A moving picture of the nodes that are being worked on. ``clock`` counts seconds."""

    def __init__(self, console: Console, nodes: Sequence[str], clock: Clock) -> None:
        self._console = console
        self._nodes = tuple(nodes)
        self._clock = clock
        self._began = clock()
        self._running: dict[str, _Line] = {}
        self._gathering: dict[str, bool] = {}
        self._finished = 0
        self._spinner = Spinner("dots", style="cyan")
        self._live = Live(
            console=console, get_renderable=self.render, refresh_per_second=8, transient=True, redirect_stderr=False
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def __call__(self, progress: Progress) -> None:
        """Take note of what has happened; the picture follows by itself."""
        if isinstance(progress, PassStarted):
            line = self._running.setdefault(progress.node, _Line(self._clock()))
            line.number = progress.number
        elif isinstance(progress, NodeFinished):
            self._finish(progress.result)
        else:
            self._task(progress.event, gathering=progress.gathering)

    def render(self) -> RenderableType:
        """Return the picture of this moment. Called on rich's thread, so it reads copies."""
        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(width=1)
        grid.add_column(no_wrap=True, style="bold cyan")
        grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        grid.add_column(no_wrap=True, justify="right", style="dim")
        now = self._clock()
        for node, line in list(self._running.items()):
            second = Text.assemble(line.task or "starting", (f"  pass {line.number}" if line.number > 1 else "", "dim"))
            steps = f"step {line.done + 1}  " if line.task else ""
            grid.add_row(self._spinner, node, second, f"{steps}{duration(now - line.since)}")
        # The footer is not padded: the ^C that a terminal echoes behind it must not begin a new line.
        return Group(grid, Text(self._footer(now), "dim", no_wrap=True, overflow="ellipsis"))

    def _footer(self, now: float) -> str:
        elapsed = duration(now - self._began)
        if self._gathering and not self._running and not self._finished:
            asked = list(self._gathering.items())
            waiting = [node for node, answered in asked if not answered]
            slow = f", waiting for {names(waiting)}" if waiting and len(waiting) < len(asked) else ""
            return f"gathering facts: {len(asked) - len(waiting)} of {count(len(self._nodes), 'node')}{slow}  {elapsed}"
        if not self._running and not self._finished:
            return f"starting ansible for {count(len(self._nodes), 'node')}  {elapsed}"
        waiting_n = len(self._nodes) - self._finished - len(self._running)
        return (
            f"{self._finished} of {len(self._nodes)} done, {len(self._running)} running, {waiting_n} waiting  {elapsed}"
        )

    def _task(self, event: TaskStarted | TaskDone, *, gathering: bool) -> None:
        line = self._running.get(event.node)
        if line is None:
            self._gathering[event.node] = isinstance(event, TaskDone)
        elif isinstance(event, TaskDone):
            line.done += 1
        else:
            line.task = "looking at the node again" if gathering else task_name(event.task, event.role)

    def _finish(self, result: NodeResult) -> None:
        line = self._running.pop(result.node, None)
        self._finished += 1
        took = f"  {duration(self._clock() - line.since)}" if line else ""
        mark = Text("✓ " if result.status.is_good else "✗ ", STATUS_STYLES[result.status])
        what = Text.assemble((result.node, "bold cyan"), "  ", (result.status.value, STATUS_STYLES[result.status]))
        about = f": {result.failure.message}" if result.failure else f", {count(result.changes, 'change')}"
        self._console.print(Text.assemble(mark, what, about, (took, "dim")))


def open_view(console: Console, nodes: Sequence[str], clock: Clock) -> View:
    """Return the view that suits where the output goes."""
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveView(console, nodes, clock)
    return PlainView(console, nodes, clock)
