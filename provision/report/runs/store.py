"""Keeps runs below the user's state folder: one folder each, by project and by the time at which they began.

    <state>/grapnel/runs/<inventory>/20261124T025325Z-apply-3f2a/
        events.jsonl    locked for as long as the run goes on; the kernel drops the lock with the process
        log             for people
        artifacts/      output and events of every ansible-playbook
        report.html     where somebody has asked for it

All of it is for the user alone. Old ones are removed by count and age when a new one begins, never one that goes on.
"""

from __future__ import annotations

import contextlib
import fcntl
import re
import secrets
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from provision.base.errors import GrapnelError, os_reason
from provision.report.runs.events import STEPS, decode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from provision.report.runs.events import RunEvent

MAX_LINE: Final = 4 * 1024 * 1024
_STAMP: Final = "%Y%m%dT%H%M%SZ"
_NAME: Final = re.compile(r"(\d{8}T\d{6}Z)-([a-z]+)-[0-9a-f]{4}")
_EVENTS: Final = "events.jsonl"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run's folder; its name is the run's."""

    path: Path

    @property
    def name(self) -> str:
        """The name of the run, by which people ask for it."""
        return self.path.name

    @property
    def events(self) -> Path:
        """One line for each event."""
        return self.path / _EVENTS

    @property
    def log(self) -> Path:
        """What people read."""
        return self.path / "log"

    @property
    def artifacts(self) -> Path:
        """What ansible-playbook said."""
        return self.path / "artifacts"

    @property
    def page(self) -> Path:
        """The report."""
        return self.path / "report.html"

    @property
    def began(self) -> datetime:
        """When it began, by its name."""
        stamp = self.name.partition("-")[0]
        return datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC)

    def is_going_on(self) -> bool:
        """Tell whether a process has it locked."""
        try:
            with self.events.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def read(self, *, details: bool = True) -> Iterator[RunEvent]:
        """Yield its events, those that can be read; without ``details`` not what steps did, which is most of it."""
        try:
            with self.events.open("rb") as lines:
                while line := lines.readline(MAX_LINE):
                    if not details and line.startswith(STEPS):
                        continue
                    if (event := decode(line)) is not None:
                        yield event
        except OSError as error:
            why = os_reason(error)
            raise RunsError(f"the events of run {self.name} in {self.path} cannot be read: {why}") from error


@dataclass(frozen=True, slots=True)
class Shelf:
    """All runs of one project."""

    folder: Path

    def runs(self) -> list[RunFolder]:
        """Return the runs, the newest first."""
        with contextlib.suppress(FileNotFoundError):
            found = [RunFolder(path) for path in self.folder.iterdir() if _NAME.fullmatch(path.name)]
            return sorted(found, key=lambda run: run.name, reverse=True)
        return []

    def find(self, name: str | None) -> RunFolder:
        """Return a run by its name or the beginning of it, without one the newest. Raises RunsError."""
        runs = self.runs()
        if not runs:
            raise RunsError(
                f"no run is recorded in {self.folder}",
                hint="runs are kept for each inventory: name it with `--inventory`, as it was for the run",
            )
        if name is None:
            return runs[0]
        found = [run for run in runs if run.name == name] or [run for run in runs if run.name.startswith(name)]
        if len(found) != 1:
            what = "is the name of no run" if not found else f"begins the names of {len(found)} runs"
            raise RunsError(f"'{name}' {what}", hint="`grapnel report --list` shows their names")
        return found[0]

    @contextlib.contextmanager
    def begin(self, verb: str, now: datetime) -> Iterator[tuple[RunFolder, IO[bytes]]]:
        """Make the folder of a run, and hold its events locked while it goes on."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        name = f"{now.astimezone(UTC).strftime(_STAMP)}-{verb}-{secrets.token_hex(2)}"
        unseen = self.folder / f".{name}"  # so that nobody finds it before it is locked
        unseen.mkdir(mode=0o700)
        with (unseen / _EVENTS).open("xb", buffering=0) as file:
            (unseen / _EVENTS).chmod(0o600)
            fcntl.flock(file, fcntl.LOCK_EX)
            unseen.rename(self.folder / name)
            yield RunFolder(self.folder / name), file

    def clear(self, *, keep: int, days: int, now: datetime) -> list[str]:
        """Remove the oldest runs beyond ``keep``, and those older than ``days``; return their names."""
        oldest = now - timedelta(days=days)
        gone = []
        for index, run in enumerate(self.runs()):
            if (index >= keep or run.began < oldest) and _remove(run):
                gone.append(run.name)
        return gone


def _remove(run: RunFolder) -> bool:
    """Remove a run unless it goes on; whoever removes it holds its lock."""
    try:
        with run.events.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(run.path)
    except FileNotFoundError:
        shutil.rmtree(run.path, ignore_errors=True)
    except OSError:
        return False
    return True


def runs_folder(environment: Mapping[str, str], project: str) -> Path:
    """Return where the runs of a project lie; ``project`` stands for its inventory."""
    home = Path(environment.get("HOME") or "~").expanduser()
    state = Path(environment.get("XDG_STATE_HOME") or home / ".local" / "state")
    return state / "grapnel" / "runs" / project


class RunsError(GrapnelError):
    """There is no such run, or it cannot be read."""
