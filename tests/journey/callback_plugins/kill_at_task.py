"""Kills a whole apply at the task with a given number, as a machine that loses its power would.

``KILL_LOG`` is a file that gets a line for every task of a change as it begins, over all passes; ``KILL_AT`` the number
of the line at which ``grapnel``, ansible-playbook and its workers are killed, 0 for never; ``KILL_AFTER_S`` how long
after the beginning. A task that was skipped is marked: it did nothing that could be left half done.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: kill_at_task
type: notification
short_description: kills an apply at a task
description: [for tests]
requirements: [none]
"""
SKIPPED = " (skipped)"


class CallbackModule(CallbackBase):  # type: ignore[misc]  # Ansible ships no types
    """Counts the tasks of a change; gathering facts changes nothing and is not counted."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "kill_at_task"

    def __init__(self) -> None:
        super().__init__()
        self._log = Path(os.environ["KILL_LOG"])
        self._is_change = False

    def v2_playbook_on_start(self, playbook: Any) -> None:
        self._is_change = Path(playbook._file_name).name != "facts.yml"

    def v2_runner_on_start(self, _host: object, task: Any) -> None:
        if not self._is_change:
            return
        with self._log.open("a", encoding="utf-8") as log:
            log.write(f"{task.get_name().strip()}\n")
        if len(self._log.read_text(encoding="utf-8").splitlines()) == int(os.environ["KILL_AT"]):
            threading.Timer(float(os.environ["KILL_AFTER_S"]), kill).start()

    def v2_runner_on_skipped(self, _result: object) -> None:
        if self._is_change:
            with self._log.open("r+", encoding="utf-8") as log:
                text = log.read().removesuffix("\n")
                log.seek(0)
                log.write(f"{text}{SKIPPED}\n")


def kill() -> None:
    """Kill the apply that this run belongs to, then the run."""
    apply = json.loads(Path(os.environ["GRAPNEL_APPLY"]).read_text(encoding="utf-8"))
    os.kill(apply["pid"], signal.SIGKILL)
    os.killpg(0, signal.SIGKILL)
