"""Writes a run of a verb down: its events, a log for people, and what Ansible said, in a folder that outlives it."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TextIO, cast

import provision
from provision.base.errors import ExitCode, GrapnelError, os_reason
from provision.cli.terminal import person, say
from provision.declaration.fleet.sources import inventory_key
from provision.report.console import make_console
from provision.report.progress.live import open_view
from provision.report.progress.plain import PlainView
from provision.report.results import render_results
from provision.report.runs.digest import digest
from provision.report.runs.durations import Durations
from provision.report.runs.events import SCHEMA, Began
from provision.report.runs.model import State, report_document
from provision.report.runs.record import RunRecord, Unrecorded, utc_now
from provision.report.runs.store import RunsError, Shelf, runs_folder
from provision.report.terminal import show

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rich.console import Console

    from provision.apply.model import Assessment, Failure, NodeResult
    from provision.declaration.fleet.model import Fleet
    from provision.report.progress.live import View
    from provision.report.runs.model import RunReport
    from provision.report.runs.store import RunFolder
    from provision.rollout.interface.progress import RolloutObserver, RolloutProgress

MOST_ARTIFACTS: Final = 300  # of a run: 13 kB each; more only of playbooks that fail
MAX_LOG_BYTES: Final = 16 * 1024 * 1024
_UNSAID: Final = frozenset({"--json", "--yes"})  # options that say nothing about what was done


class Run:
    """A run that is being written down. ``UNRECORDED`` is one that is not."""

    def __init__(
        self,
        record: RunRecord | None = None,
        folder: RunFolder | None = None,
        log: TextIO | None = None,
        *,
        as_json: bool = False,
    ) -> None:
        self._record, self._folder, self._as_json = record, folder, as_json
        self._sink = record or Unrecorded()
        self._log = None if log is None else make_console(log, width=160)
        self._view: PlainView | None = None
        self._nodes: tuple[str, ...] = ()

    @property
    def people(self) -> TextIO:
        """Where people read: standard error where standard output is for a document."""
        return sys.stderr if self._as_json else sys.stdout

    def view(self, console: Console, nodes: Sequence[str]) -> View:
        """Return a view of the nodes that knows how long steps took last time."""
        return open_view(console, nodes, time.monotonic, self.durations)

    @property
    def durations(self) -> Mapping[str, float]:
        """How long steps took last time, in seconds."""
        return {} if self._folder is None else Durations(self._folder.path.parent).read()

    def observing(self, observe: RolloutObserver) -> RolloutObserver:
        """Return an observer that writes down what it hears, and then tells ``observe``."""
        if self._log is not None and self._view is None:
            self._view = PlainView(self._log, self._nodes, time.monotonic)

        def both(progress: RolloutProgress) -> None:
            if self._view is not None:
                self._view(progress)
            observe(progress)

        return self._sink.observing(both)

    def planned(self, answers: Mapping[str, Assessment | Failure]) -> None:
        """Write down what is to be done."""
        self._sink.planned(answers)
        self._nodes = tuple(answers)

    def declined(self) -> None:
        """Write down that a person did not want it."""
        self._sink.declined()

    def results(self, results: Iterable[NodeResult], elapsed_s: float) -> None:
        """Write down how the nodes ended."""
        found = tuple(results)
        self._sink.results(found)
        if self._log is not None:
            show(self._log, render_results(found, elapsed_s))

    def end(self, code: int, error: GrapnelError | BaseException | None = None) -> None:
        """Write down how it ended."""
        if self._record is None:
            return
        message = "" if error is None else str(error) or type(error).__name__
        self._record.end(code, error=message, hint=error.hint if isinstance(error, GrapnelError) else "")
        if self._log is not None and message:
            self._log.print(f"error: {message}", soft_wrap=True)

    def report(self) -> RunReport | None:
        """Return what has happened so far."""
        if self._record is None:
            return None
        folder, kept = self._folder, self._record.kept
        if folder is None:
            return digest(kept, is_going_on=False)
        paths = {"log": str(folder.log), "artifacts": str(folder.artifacts)}
        if not self._record.trouble:
            with contextlib.suppress(RunsError):  # it was removed meanwhile
                return digest(folder.read(), is_going_on=False, **paths)
        return digest(kept, is_going_on=False, **paths)


UNRECORDED: Final = Run()


def recorded(args: argparse.Namespace, fleet: Fleet, verb: str, work: Callable[[Run], int]) -> int:
    """Do the work of a verb, write it down, and return its exit code; with `--json`, print what happened.

    A folder that cannot be made is said, and stops nothing. What the work raises is raised at the end.
    """
    with contextlib.ExitStack() as stack:
        folder, file, log = _open(stack, args, fleet, verb)
        record = RunRecord(file)
        run = Run(record, folder, log, as_json=args.json)
        if folder is not None and args.keep_artifacts is None:
            args.keep_artifacts, args.most_artifacts = folder.artifacts, MOST_ARTIFACTS
        record.note(_beginning(fleet, verb, folder))
        try:
            code = _watched(run, work)
        finally:
            _finish(run, record, folder, as_json=args.json)
    return code


def _beginning(fleet: Fleet, verb: str, folder: RunFolder | None) -> Began:
    said = [word for word in sys.argv[1:] if word not in _UNSAID]
    return Began(
        time=utc_now(),
        schema=SCHEMA,
        run=verb if folder is None else folder.name,
        command=(verb, *(said[said.index(verb) + 1 :] if verb in said else ())),
        by=person(),
        grapnel=provision.__version__,
        inventory=", ".join(fleet.inventories) or "the inventory of ansible.cfg",
        nodes=len(fleet.nodes),
    )


def _finish(run: Run, record: RunRecord, folder: RunFolder | None, *, as_json: bool) -> None:
    """Remember durations, print what happened for scripts, and say where people find it if something went wrong."""
    report = run.report()
    if record.trouble:
        say(f"· {record.trouble}", sys.stderr)
    if report is None:
        return
    if folder is not None:
        Durations(folder.path.parent).update(report)
    if as_json:
        print(report_document(report))
    if folder is not None and report.state not in (State.SUCCEEDED, State.DECLINED):
        say(f"what happened: `grapnel report {folder.name}`; log: {folder.log}", sys.stderr)


def _watched(run: Run, work: Callable[[Run], int]) -> int:
    """Do the work, and write down how it ended, also where that is an error."""
    try:
        code = work(run)
    except GrapnelError as error:
        run.end(error.exit_code, error)
        raise
    except KeyboardInterrupt:
        run.end(ExitCode.INTERRUPTED)
        raise
    except BaseException as error:
        run.end(ExitCode.BUG, error)
        raise
    run.end(code)
    return code


def _open(
    stack: contextlib.ExitStack, args: argparse.Namespace, fleet: Fleet, verb: str
) -> tuple[RunFolder | None, IO[bytes] | None, TextIO | None]:
    """Make the folder of the run, with its files; nothing where that cannot be done."""
    shelf = Shelf(runs_folder(os.environ, inventory_key(fleet.inventories, Path.cwd())))
    try:
        now = utc_now()
        shelf.clear(keep=args.keep_runs - 1, days=args.keep_days, now=now)
        folder, file = stack.enter_context(shelf.begin(verb, now))
        log = stack.enter_context(folder.log.open("x", encoding="utf-8", errors="backslashreplace"))
        folder.log.chmod(0o600)
    except OSError as error:
        say(f"· this run is not written down: {os_reason(error)}", sys.stderr)
        return None, None, None
    return folder, file, cast("TextIO", _Bounded(log, MAX_LOG_BYTES))


class _Bounded:
    """Passes on text until there is too much of it, or the disk is full; the rest is dropped."""

    def __init__(self, stream: TextIO, limit: int) -> None:
        self._stream, self._left = stream, limit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, or drop it."""
        if self._left > 0:
            self._left -= len(text)
            cut = "" if self._left > 0 else "\n… the log has its greatest size\n"
            with contextlib.suppress(OSError):
                self._stream.write(text + cut)
                self._stream.flush()
        return len(text)

    def flush(self) -> None:
        """Flush, or drop what was to be flushed."""
        with contextlib.suppress(OSError):
            self._stream.flush()
