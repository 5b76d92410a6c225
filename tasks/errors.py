"""Errors of the tasks.

TaskError
├── SetupError    the machine or the environment cannot be made ready
└── StageError    stages have failed
"""

from __future__ import annotations


class TaskError(Exception):
    """Base of both: its text is the one line that a person sees."""


class SetupError(TaskError):
    """The set-up cannot go on: says in one line what is missing and what helps."""


class StageError(TaskError):
    """Stages have failed: names them."""
