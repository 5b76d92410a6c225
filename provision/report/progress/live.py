"""Shows progress on a terminal: a line per running node that moves, finished nodes scroll up and stay."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, Self

from rich.console import Group
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table

from provision.apply.carried_out import step_name
from provision.apply.model import NodeFinished, NodeTask, PassStarted, Staging, Status
from provision.apply.runner import TaskDone, TaskOutcome
from provision.report.console import Text
from provision.report.progress.plain import PlainView
from provision.report.terminal import (
    STATUS_STYLES,
    count,
    crowd,
    duration,
    hanging,
    last_time,
    names,
    phase_words,
    spread,
    waiting_words,
)
from provision.rollout.interface.progress import NodeWaits, PhaseEntered
from provision.rollout.model import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from rich.console import Console, RenderableType

    from provision.apply.model import NodeResult
    from provision.apply.runner import TaskStarted
    from provision.rollout.interface.progress import RolloutProgress

Clock = Callable[[], float]
WAITING_SHOWN = 6
LINES = 8  # from here on, running nodes that do the same have one line
NOTHING_KNOWN: Mapping[str, float] = MappingProxyType({})
REFRESH_S = 0.125


class View(AbstractContextManager["View"], Protocol):
    """Shows progress while it is open."""

    def __call__(self, progress: RolloutProgress) -> None:
        """Show what has happened."""


@dataclass(slots=True)
class _Line:
    """What a node is doing; ``phase`` is that of a rollout, ``waits`` what it waits for in that phase.

    ``is_out``: it is out of service.
    """

    since: float
    task: str = ""
    number: int = 1
    done: int = 0
    phase: str = ""
    phase_since: float = 0
    waits: str = ""
    is_out: bool = False
    task_since: float = 0

    @property
    def doing(self) -> tuple[str, str, int]:
        """What nodes have in common that do the same."""
        return self.phase, waiting_words(self.waits) if self.waits else self.task, self.number

    def words(self, now: float, last: Mapping[str, float]) -> Text:
        """Return the middle of the line; ``last`` says how long what it does took last time."""
        phase, about, number = self.doing
        before = last_time(last, self.task, now - self.task_since) if self.task and not self.waits else ""
        before = before or (last_time(last, phase, now - self.phase_since) if phase and not self.task else "")
        if phase:
            return Text.assemble((phase, "bold"), "  ", about, (before, "dim"))
        again = f"  pass {number}" if number > 1 else ""
        return Text.assemble(about or "starting", (before, "dim"), (again, "dim"))

    def figures(self, now: float) -> str:
        """Return its end: the time in this phase and out of service, or the step and the time."""
        if self.is_out:
            return f"{duration(now - self.phase_since)}, out for {duration(now - self.since)}"
        steps = f"step {self.done + 1}  " if self.task else ""
        return f"{steps}{duration(now - self.since)}"


class LiveView:
    """A live display of the nodes that are being changed.

    ``clock`` counts seconds, ``last`` are the seconds that steps and phases took last time.
    """

    def __init__(
        self, console: Console, nodes: Sequence[str], clock: Clock, last: Mapping[str, float] = NOTHING_KNOWN
    ) -> None:
        self._console = console
        self._nodes = tuple(nodes)
        self._clock = clock
        self._last = last
        self._began = clock()
        self._running: dict[str, _Line] = {}
        self._gathering: dict[str, bool] = {}
        self._waiting: dict[str, str] = {}
        self._finished: set[str] = set()
        self._spinner = Spinner("dots", style="cyan")
        self._live = Live(
            console=console, get_renderable=self.render, auto_refresh=False, transient=True, redirect_stderr=False
        )
        # rich's own refreshing thread may erase what a print at the same moment has counted: one of ours takes turns.
        self._turn = threading.Lock()
        self._closed = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="view", daemon=True)

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        self._ticker.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self._ticker.join()
        self._live.stop()

    def _tick(self) -> None:
        while not self._closed.wait(REFRESH_S):
            with self._turn:
                self._live.refresh()

    def _print(self, line: RenderableType) -> None:
        """Print a line above the picture."""
        with self._turn:
            self._console.print(line)

    def __call__(self, progress: RolloutProgress) -> None:
        """Take note of what has happened; the picture follows by itself."""
        if isinstance(progress, PassStarted):
            self._line(progress.node).number = progress.number
        elif isinstance(progress, Staging):
            self._stage(progress)
        elif isinstance(progress, NodeFinished):
            self._finish(progress.result)
        elif isinstance(progress, NodeTask):
            self._task(progress.event, gathering=progress.gathering)
        elif isinstance(progress, PhaseEntered):
            self._phase(progress)
        elif isinstance(progress, NodeWaits):
            self._wait(progress)
        else:
            self._print(hanging(Text(f"· {progress.node}  " if progress.node else "· "), Text(progress.text)))

    def _line(self, node: str) -> _Line:
        return self._running.setdefault(node, _Line(self._clock()))

    def render(self) -> RenderableType:
        """Return the picture of this moment. Called on the view's own thread, so it reads copies."""
        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(width=1)
        grid.add_column(no_wrap=True, style="bold cyan")
        grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        grid.add_column(no_wrap=True, justify="right", style="dim")
        now = self._clock()
        for those, words, figures in self._rows(now):
            grid.add_row(self._spinner, those, words, figures)
        waiting = list(self._waiting.items())
        for node, reason in waiting[:WAITING_SHOWN]:
            grid.add_row("", node, Text(reason, "dim"), "")
        if len(waiting) > WAITING_SHOWN:
            grid.add_row("", "", Text(f"and {len(waiting) - WAITING_SHOWN} more waiting", "dim"), "")
        # The footer is not padded: the ^C that a terminal echoes behind it must not begin a new line.
        return Group(grid, Text(self._footer(now), "dim", no_wrap=True, overflow="ellipsis"))

    def _rows(self, now: float) -> Iterator[tuple[str, Text, str]]:
        """Yield a row for each running node; where they are many, one for all that do the same."""
        running = list(self._running.items())
        if len(running) <= LINES:
            for node, line in running:
                yield node, line.words(now, self._last), line.figures(now)
            return
        alike: dict[tuple[str, str, int], list[tuple[str, _Line]]] = {}
        for node, line in running:
            alike.setdefault(line.doing, []).append((node, line))
        ranked = sorted(alike.values(), key=len, reverse=True)
        for those in ranked[:LINES]:
            first = those[0][1]
            figures = first.figures(now) if len(those) == 1 else spread(now - line.since for _, line in those)
            yield crowd([node for node, _ in those]), first.words(now, self._last), figures
        if rest := [node for those in ranked[LINES:] for node, _ in those]:
            yield crowd(rest), Text("at other steps", "dim"), ""

    def _footer(self, now: float) -> str:
        elapsed = duration(now - self._began)
        if self._gathering and not self._running and not self._finished:
            asked = list(self._gathering.items())
            waiting = [node for node, answered in asked if not answered]
            slow = f", waiting for {names(waiting)}" if waiting and len(waiting) < len(asked) else ""
            return f"gathering facts: {len(asked) - len(waiting)} of {count(len(self._nodes), 'node')}{slow}  {elapsed}"
        if not self._running and not self._finished:
            return f"starting ansible for {count(len(self._nodes), 'node')}  {elapsed}"
        done, running = len(self._finished), len(self._running)
        waiting_n = len(self._nodes) - done - running
        return f"{done} of {len(self._nodes)} done, {running} running, {waiting_n} waiting  {elapsed}"

    def _task(self, event: TaskStarted | TaskDone, *, gathering: bool) -> None:
        line = self._running.get(event.node)
        if line is None:
            self._gathering[event.node] = isinstance(event, TaskDone)
        elif isinstance(event, TaskDone):
            line.done += event.is_step and event.outcome is not TaskOutcome.SKIPPED
        elif event.is_step:
            looks = "asking who holds a GPU" if line.phase == Phase.RELEASE.value else "gathering facts again"
            line.task = looks if gathering else step_name(event.task, event.role)
            line.task_since, line.waits = self._clock(), ""

    def _stage(self, staging: Staging) -> None:
        if not staging.is_done:
            self._line(staging.node).phase = "stage"
            return
        line = self._running.pop(staging.node, None)
        took = f"  {duration(self._clock() - line.since)}" if line else ""
        self._print(hanging(Text(f"· {staging.node}  "), Text.assemble(f"{staging.what} staged", (took, "dim"))))

    def _phase(self, entered: PhaseEntered) -> None:
        self._waiting.pop(entered.node, None)
        if entered.phase.is_over:
            status = Status.FAILED if entered.reason else Status.CONVERGED
            self._scroll(entered.node, status, phase_words(entered), is_good=status.is_good)
            return
        if entered.phase is Phase.ROLLBACK:  # why it goes back is worth a line of its own
            self._print(hanging(Text(f"✗ {entered.node}  ", "bold cyan"), Text(entered.reason)))
        line = self._line(entered.node)
        line.phase, line.phase_since, line.waits, line.task = entered.phase.value, self._clock(), "", ""
        line.is_out = not entered.is_in_place

    def _wait(self, waits: NodeWaits) -> None:
        if waits.node in self._running:
            self._running[waits.node].waits = waits.reason
        elif waits.reason and waits.node not in self._finished:
            self._waiting[waits.node] = waits.reason
        else:
            self._waiting.pop(waits.node, None)

    def _finish(self, result: NodeResult) -> None:
        if result.node not in self._finished:
            told = result.failure.message if result.failure else result.note
            about = f": {told}" if told else f", {count(result.changes, 'change')}"
            self._scroll(result.node, result.status, f"{result.status.value}{about}", is_good=result.is_good)

    def _scroll(self, node: str, status: Status, words: str, *, is_good: bool) -> None:
        """Print how a node ended, above the picture."""
        line = self._running.pop(node, None)
        self._waiting.pop(node, None)
        self._finished.add(node)
        took = f"  {duration(self._clock() - line.since)}" if line else ""
        mark = Text("✓ " if is_good else "✗ ", STATUS_STYLES[status])
        head, colon, rest = words.partition(":")
        style = STATUS_STYLES[status if is_good or not status.is_good else Status.FAILED]
        what = Text.assemble((head, style), f"{colon}{rest}", (took, "dim"))
        self._print(hanging(Text.assemble(mark, (f"{node}  ", "bold cyan")), what))


def open_view(console: Console, nodes: Sequence[str], clock: Clock, last: Mapping[str, float] = NOTHING_KNOWN) -> View:
    """Return the view that suits where the output goes."""
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveView(console, nodes, clock, last)
    return PlainView(console, nodes, clock)
