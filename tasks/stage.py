"""Runs stages, each a command of its own, side by side as far as the cores go, and tells what came of each.

A stage that fails keeps no other from running. What a stage is for is not known here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tasks.errors import SetupError, StageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tasks.progress import Progress

CORES = 2  # what the stages are cut for
POLL_S = 0.05
TAIL_BYTES = 1 << 16
SHOWN_LINES = 200
GRACE_S = 60.0  # tests that are interrupted take their nodes down


@dataclass(frozen=True)
class Stage:
    """A command and how many cores it keeps busy.

    One that mostly waits, for machines that it has started, is ``beside``: it takes no core from the others.
    ``about`` says how long it takes where nothing is built yet.
    """

    title: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cores: int = 1
    beside: bool = False
    about: str = ""


@dataclass(frozen=True)
class Result:
    """What came of a stage; ``log`` has what it printed.

    ``cpu_s`` is the processors' time of its processes, apart from those that were left to others, as services are.
    """

    title: str
    took_s: float
    cpu_s: float
    status: int
    log: Path

    @property
    def has_passed(self) -> bool:
        """Whether the command ended with status 0."""
        return self.status == 0


def plain_python(title: str, *argv: str, beside: bool = False, about: str = "") -> Stage:
    """Return a stage that runs a module by the Python that runs this one, which has no libraries."""
    return Stage(title, (sys.executable, "-P", "-m", *argv), beside=beside, about=about)


def run_stages(stages: Sequence[Stage], progress: Progress) -> list[Result]:
    """Run every stage and return what came of each, in the order of their ends.

    They are started in their order, each as soon as the cores that it needs are free; those that mostly wait follow one
    another beside them.
    """
    waiting, running, results = list(stages), list[_Running](), list[Result]()
    try:
        while waiting or running:
            while (stage := _next(waiting, [each.stage for each in running])) is not None:
                waiting.remove(stage)
                running.append(_Running(stage, progress.log_dir))
            time.sleep(POLL_S)
            for each in list(running):
                if (result := each.result()) is not None:
                    running.remove(each)
                    results.append(result)
                    _tell(result, progress)
            if running:
                progress.redraw(" | ".join(_what(each) for each in running))
    finally:
        for each in running:
            each.interrupt()
        for each in running:
            each.end()
    return results


def run_in_turn(stages: Sequence[Stage], progress: Progress) -> None:
    """Run stages one after the other; ``StageError`` at the first one that fails."""
    for stage in stages:
        require(run_stages([stage], progress))


def require(results: Sequence[Result]) -> None:
    """Raise ``StageError`` with the names of those that failed."""
    failed = [result.title for result in results if not result.has_passed]
    if failed:
        raise StageError(f"failed: {', '.join(failed)}")


def render_table(results: Sequence[Result]) -> list[str]:
    """Return the lines of a table: how long each stage took, how much of processors, and what came of it."""
    width = max((len(result.title) for result in results), default=0)
    return [
        f"{each.title:<{width}}  {_minutes(each.took_s)}  {_minutes(each.cpu_s)} of CPU  {_verdict(each)}"
        for each in results
    ]


def _next(waiting: Sequence[Stage], running: Sequence[Stage]) -> Stage | None:
    """Return the stage that may be started now."""
    busy = next((stage for stage in waiting if not stage.beside), None)
    if busy is not None and busy.cores <= CORES - sum(stage.cores for stage in running if not stage.beside):
        return busy
    if any(stage.beside for stage in running):
        return None
    return next((stage for stage in waiting if stage.beside), None)


def _what(running: _Running) -> str:
    about = f" (about {running.stage.about})" if running.stage.about else ""
    return f"{running.stage.title}{about}: {_last_line(running.log)}"


def _tell(result: Result, progress: Progress) -> None:
    if result.has_passed:
        progress.say(f"{result.title}: passed in {result.took_s:.1f} s: {_last_line(result.log)}")
        return
    took = f"{result.took_s:.1f} s"
    progress.say(f"{result.title}: failed with status {result.status} after {took}; end of {result.log}:")
    progress.show("\n".join(_lines(result.log)[-SHOWN_LINES:]))


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60:3}:{int(seconds) % 60:02}"


def _verdict(result: Result) -> str:
    return "passed" if result.has_passed else f"FAILED, see {result.log}"


def _lines(log: Path) -> list[str]:
    """Return the lines at the end of a log."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
        return [line.rstrip() for line in file.read().decode(errors="replace").splitlines()]


def _last_line(log: Path) -> str:
    return next((line.strip() for line in reversed(_lines(log)) if line), "…")


class _Running:
    """A stage that was started, in a session of its own: what interrupts us reaches it once, through us."""

    def __init__(self, stage: Stage, log_dir: Path) -> None:
        self.stage, self.begun = stage, time.monotonic()
        self.log = log_dir / f"{stage.title.replace(' ', '-').replace('/', '-')}.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.log.open("wb") as out:
                self.child = subprocess.Popen(
                    stage.argv,
                    env={**os.environ, **stage.env},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except FileNotFoundError as error:
            raise SetupError(f"{stage.argv[0]}: no such program") from error

    def result(self) -> Result | None:
        """Return what came of it once it has ended."""
        ended, status, used = os.wait4(self.child.pid, os.WNOHANG)
        if not ended:
            return None
        self.child.returncode = os.waitstatus_to_exitcode(status)
        took_s, cpu_s = time.monotonic() - self.begun, used.ru_utime + used.ru_stime
        return Result(self.stage.title, took_s, cpu_s, self.child.returncode, self.log)

    def interrupt(self) -> None:
        """Ask it to come to an end."""
        self._signal(signal.SIGINT)

    def end(self) -> None:
        """Wait until it has tidied up, but not for ever."""
        try:
            self.child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self.child.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, number)
