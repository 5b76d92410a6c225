"""Reading a run's kept artifacts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from bench.stage.by_hand import changed
from bench.stage.runs import Task, read_runs

if TYPE_CHECKING:
    from pathlib import Path


def keep(folder: Path, began: float, *ends: tuple[str, str, float]) -> None:
    """Write a run's events, one task after the other."""
    events, now = [], began
    for node, task, took in ends:
        about = {"node": node, "task": task, "id": f"id of {task}"}
        events.append({"event": "started", "time": now, **about})
        now += took
        events.append({"event": "ok", "time": now, **about})
    folder.mkdir()
    folder.joinpath("events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))


def test_runs_on_one_node_are_read_in_their_order(tmp_path: Path) -> None:
    keep(tmp_path / "apply-n1", 30.5, ("n1", "Install", 2.5), ("n1", "Hold", 0.25))
    keep(tmp_path / "facts-n1-2", 20.0, ("n1", "Gather facts", 1.0))
    keep(tmp_path / "facts-nodes", 10.0, ("n1", "Gather facts", 1.0), ("n2", "Gather facts", 1.0))

    facts, apply = read_runs(tmp_path)

    assert (facts.playbook, apply.playbook, apply.node) == ("facts", "apply", "n1")
    assert apply.tasks == (Task("Install", 2.5), Task("Hold", 0.25))
    assert apply.in_tasks_s == 2.75


def test_the_way_back_is_what_has_changed() -> None:
    before, after = {"libcuda1": "535.1", "dpkg": "1", "gone": "1"}, {"libcuda1": "535.2", "dpkg": "1", "new": "1"}

    assert changed(before, after) == {"libcuda1": "535.1"}
