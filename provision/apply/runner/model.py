"""Defines what goes into a run and what comes out of it, as values.

No Ansible type and no raw event leaves this package: a reader of these values needs to know nothing about
either.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """One run of one playbook against some nodes of the user's inventory.

    ``inventory`` holds absolute paths, or lists of hosts with a comma, and is handed to Ansible as it is, so that
    group_vars beside it, plugins and scripts work. ``nodes`` are inventory names; empty means every node. ``keep``
    names the keys of a task's result that ``TaskDone.values`` carries: everything else of a result stays behind.
    ``only_reads`` says that the run changes nothing, and so may end at any moment, as with whoever asked for it.
    """

    playbook: Path
    inventory: tuple[str, ...]
    nodes: tuple[str, ...] = ()
    extra_vars: Mapping[str, object] = field(default_factory=dict)
    forks: int = 5
    check: bool = False
    timeout_s: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    keep: frozenset[str] = frozenset()
    only_reads: bool = False


class TaskOutcome(Enum):
    """How a task ended on a node."""

    OK = "ok"
    CHANGED = "changed"
    FAILED = "failed"
    SKIPPED = "skipped"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """A task began on a node; ``is_step`` is false for one that only arranges or checks others, such as an include."""

    node: str
    task: str
    role: str = ""
    is_step: bool = True


@dataclass(frozen=True, slots=True)
class TaskDone:
    """A task ended on a node.

    ``message`` is one line, empty unless something went wrong; ``tail`` the last lines of what the task
    printed, ``values`` the result's keys that the request asked to keep, each as the JSON that came: whoever wants it
    decodes it by type. ``ignored`` says that the playbook goes on in spite of the failure, ``is_step`` what it
    says of `TaskStarted`.
    """

    node: str
    task: str
    outcome: TaskOutcome
    role: str = ""
    message: str = ""
    tail: tuple[str, ...] = ()
    values: Mapping[str, bytes] = field(default_factory=dict)
    ignored: bool = False
    is_step: bool = True


@dataclass(frozen=True, slots=True)
class NodeStats:
    """Ansible's own count of what happened on a node during the run."""

    ok: int = 0
    changed: int = 0
    failed: int = 0
    unreachable: int = 0


class RunStatus(Enum):
    """How a run ended as a whole."""

    SUCCESSFUL = "successful"
    FAILED = "failed"  # a task failed or a node was unreachable: the events say which
    NO_NODES = "no-nodes"  # the inventory and the asked nodes have nothing in common: no task ran
    ERROR = "error"  # Ansible gave up outside any task: a playbook or inventory it cannot read
    CANCELED = "canceled"
    TIMED_OUT = "timed-out"


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The last event of every run. ``message`` is empty when the run was successful."""

    status: RunStatus
    stats: Mapping[str, NodeStats] = field(default_factory=dict)
    message: str = ""
    artifacts: Path | None = None


@dataclass(frozen=True, slots=True)
class CutOff:
    """What carries the run out on a node has ended, and the run has not: ``message`` is for people."""

    node: str
    message: str


Event = TaskStarted | TaskDone | CutOff | RunFinished
