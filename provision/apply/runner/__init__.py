"""Runs a playbook: a typed request in, typed events out.

The only importer of ``ansible_runner``. What a playbook means, which node comes when, and what an event
says about a node's state is decided by the caller; nothing here knows about plans, facts or drivers.
"""

from provision.apply.runner.ansible import AnsibleRunner, find_collection
from provision.apply.runner.early import EarlyAnsible
from provision.apply.runner.model import (
    CutOff,
    Event,
    NodeStats,
    RunFinished,
    RunRequest,
    RunStatus,
    TaskDone,
    TaskOutcome,
    TaskStarted,
)
from provision.apply.runner.processes import end_processes

__all__ = [
    "AnsibleRunner",
    "CutOff",
    "EarlyAnsible",
    "Event",
    "NodeStats",
    "RunFinished",
    "RunRequest",
    "RunStatus",
    "TaskDone",
    "TaskOutcome",
    "TaskStarted",
    "end_processes",
    "find_collection",
]
