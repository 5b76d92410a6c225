"""Inventories and playbooks for runs on this machine, without any node."""

from __future__ import annotations

import dataclasses
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from provision.apply.runner import AnsibleRunner, Event, RunFinished, RunRequest, TaskDone

if TYPE_CHECKING:
    from pathlib import Path

LOCAL = "ansible_connection=local ansible_python_interpreter=/usr/bin/python3"
CLOSED = "ansible_connection=ssh ansible_host=127.0.0.1 ansible_port=1"


@dataclass(frozen=True)
class Stage:
    """A folder with an inventory and playbooks."""

    folder: Path

    def request(
        self, tasks: str, *, hosts: str = "all", inventory: str = f"n1 {LOCAL}\n", **more: object
    ) -> RunRequest:
        playbook = self.folder / "play.yml"
        indented = "".join(f"    {line}\n" for line in tasks.strip().splitlines())
        playbook.write_text(f"- hosts: {hosts}\n  gather_facts: false\n  tasks:\n{indented}")
        (self.folder / "hosts").write_text(inventory)
        request = RunRequest(playbook=playbook, inventory=(str(self.folder / "hosts"),))
        return dataclasses.replace(request, **more)  # type: ignore[arg-type]  # fields of the request, by name

    def run(self, request: RunRequest, runner: AnsibleRunner | None = None) -> list[Event]:
        return list((runner or AnsibleRunner()).run(request, threading.Event()))


def done(events: list[Event]) -> list[TaskDone]:
    return [event for event in events if isinstance(event, TaskDone)]


def finished(events: list[Event]) -> RunFinished:
    last = events[-1]
    assert isinstance(last, RunFinished)
    return last
