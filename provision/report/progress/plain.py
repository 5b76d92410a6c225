"""Shows progress as lines, for logs: what ended, where, after how many seconds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Self

from provision.apply.carried_out import step_name
from provision.apply.model import NodeFinished, NodeTask, PassStarted, Staging
from provision.apply.runner import TaskDone, TaskOutcome
from provision.report.terminal import count, phase_words, waiting_words
from provision.rollout.interface.progress import NodeWaits, PhaseEntered

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from rich.console import Console

    from provision.apply.model import NodeResult
    from provision.rollout.interface.progress import RolloutProgress

_LEFT: Final = re.compile(r" \([0-9:-]+ left\)")  # of a job, as the scheduler says it


class PlainView:
    """Prints a line whenever a task has ended; nothing is ever overwritten. ``clock`` counts seconds."""

    def __init__(self, console: Console, nodes: Sequence[str], clock: Callable[[], float]) -> None:
        self._console = console
        self._clock = clock
        self._began = clock()
        self._width = max(map(len, nodes), default=0)
        self._waits: dict[str, str] = {}
        self._ended: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Nothing is held."""

    def __call__(self, progress: RolloutProgress) -> None:
        """Print what has happened, if it is worth a line."""
        if isinstance(progress, PassStarted):
            self._line(progress.node, f"pass {progress.number}: {count(progress.items, 'change')} to make")
        elif isinstance(progress, Staging):
            self._line(
                progress.node,
                f"{progress.what} staged" if progress.is_done else f"stages its {progress.what}, GPUs in service",
            )
        elif isinstance(progress, NodeFinished):
            if progress.result.node not in self._ended:
                self._line(progress.result.node, _ending(progress.result))
        elif isinstance(progress, NodeTask):
            if isinstance(progress.event, TaskDone):
                self._task(progress.event, gathering=progress.gathering)
        elif isinstance(progress, PhaseEntered):
            self._phase(progress)
        elif isinstance(progress, NodeWaits):
            self._wait(progress)
        else:
            self._line(progress.node, progress.text)

    def _phase(self, entered: PhaseEntered) -> None:
        self._waits.pop(entered.node, None)
        if entered.phase.is_over:
            self._ended.add(entered.node)
        self._line(entered.node, phase_words(entered))

    def _wait(self, waits: NodeWaits) -> None:
        """Tell a reason once: what the node ahead is doing, or how much of its time a job has left, is no news."""
        told = _LEFT.sub("", waits.reason) if waits.is_out else waits.reason.partition(":")[0]
        if told and told != self._waits.get(waits.node):
            self._waits[waits.node] = told
            self._line(waits.node, waiting_words(waits.reason) if waits.is_out else waits.reason)

    def _task(self, done: TaskDone, *, gathering: bool) -> None:
        quiet = (TaskOutcome.SKIPPED, TaskOutcome.OK) if gathering or not done.is_step else (TaskOutcome.SKIPPED,)
        if done.outcome not in quiet:
            message = f": {done.message}" if done.message else ""
            self._line(done.node, f"{step_name(done.task, done.role)} … {done.outcome.value}{message}")

    def _line(self, node: str, text: str) -> None:
        elapsed = f"{self._clock() - self._began:.1f}s"
        self._console.print(f"{elapsed:>7} {node:<{self._width}}  {text}", soft_wrap=True)


def _ending(result: NodeResult) -> str:
    about = result.failure.message if result.failure else result.note
    return f"{result.status.value}: {about}" if about else result.status.value
