"""Reads the Ansible runs of an apply from the events that ``grapnel apply --keep-artifacts`` keeps."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_ENDS = ("ok", "failed", "skipped", "unreachable")


@dataclass(frozen=True)
class Task:
    """A task of a run, with its duration in seconds."""

    name: str
    took_s: float


@dataclass(frozen=True)
class Run:
    """One run of ansible-playbook on one node: when its first task began, and its tasks."""

    playbook: str
    node: str
    began: datetime
    tasks: tuple[Task, ...]

    @property
    def in_tasks_s(self) -> float:
        """Seconds during which a task was running."""
        return sum(task.took_s for task in self.tasks)


def read_runs(folder: Path) -> list[Run]:
    """Return the runs on single nodes, in order."""
    runs = [run for path in folder.iterdir() if (run := _read_run(path)) is not None]
    return sorted(runs, key=lambda run: run.began)


def _read_run(folder: Path) -> Run | None:
    events: list[dict[str, Any]] = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    begun = {(one["node"], one["id"]): one["time"] for one in events if one["event"] == "started"}
    ends = [one for one in events if one["event"] in _ENDS]
    nodes = {end["node"] for end in ends}
    if len(nodes) != 1:
        return None  # the facts of all nodes at once
    tasks = tuple(Task(end["task"], end["time"] - begun[end["node"], end["id"]]) for end in ends)
    began = datetime.fromtimestamp(events[0]["time"], UTC)
    return Run(folder.name.partition("-")[0], nodes.pop(), began, tasks)
