"""Defines what a run came to, as one document: ``docs/contracts/run-report``, what `grapnel report --json` prints.

Every verb that changes machines prints the same with ``--json``. Equal nodes are grouped, lists are bounded.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final, Literal

import msgspec

from provision.base.printable import printable_json
from provision.planning.node_plan import Derived, Item

Time = Annotated[datetime, msgspec.Meta(tz=True)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
SCHEMA: Final = "grapnel.dev/run-report/v1alpha1"


class State(StrEnum):
    """How a run stands, or ended."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    DECLINED = "declined"  # a person was asked: nothing was changed
    KILLED = "killed"  # nobody wrote down its end


class _Document(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of the document."""


class Trouble(_Document, frozen=True, kw_only=True):
    """Nodes that are not where they should be for the same reason, with what helps."""

    nodes: tuple[str, ...]
    result: str
    task: str
    message: str
    output: tuple[str, ...]
    remedy: str
    command: str
    out_of_service: bool


class Group(_Document, frozen=True, kw_only=True):
    """Nodes that had the same plan and came to the same result. ``items`` say what was to change, and why."""

    nodes: tuple[str, ...]
    result: str
    is_good: bool
    items: tuple[Item, ...]
    derived: tuple[Derived, ...]
    note: str


class Span(_Document, frozen=True, kw_only=True):
    """Something that took time on a node. ``began_seconds`` counts from the beginning of the run.

    Null ``seconds``: it had not ended when the run did.
    """

    kind: Literal["step", "phase", "stage"]
    name: str
    began_seconds: Seconds
    seconds: Seconds | None
    outcome: str


class NodeReport(_Document, frozen=True, kw_only=True):
    """One node. ``spans`` are what took time, in order; the shortest steps are left out where there are many."""

    name: str
    result: str
    is_good: bool
    changes: int
    passes: int
    message: str
    origin: str
    target: str
    began_seconds: Seconds | None
    seconds: Seconds | None
    out_of_service_seconds: Seconds | None
    is_out: bool
    waits: tuple[str, ...]
    spans: tuple[Span, ...]


class StepTotal(_Document, frozen=True, kw_only=True):
    """How long a step or a phase took on the nodes on which it did something."""

    kind: Literal["step", "phase", "stage"]
    name: str
    nodes: int
    median_seconds: Seconds
    longest_seconds: Seconds
    slowest: str


class Note(_Document, frozen=True, kw_only=True):
    """A line about a node, or about all of them."""

    seconds: Seconds
    node: str
    text: str


class RunReport(_Document, frozen=True, kw_only=True):
    """What happened in a run."""

    schema: Literal["grapnel.dev/run-report/v1alpha1"]
    run: str
    verb: str
    command: str
    by: str
    grapnel: str
    inventory: str
    state: State
    exit_code: int | None
    error: str
    hint: str
    began: Time
    ended: Time | None
    seconds: Seconds
    gathered_seconds: Seconds | None
    log: str | None
    artifacts: str | None
    is_cut: bool
    counts: dict[str, int]
    troubles: tuple[Trouble, ...]
    groups: tuple[Group, ...]
    nodes: tuple[NodeReport, ...]
    steps: tuple[StepTotal, ...]
    notes: tuple[Note, ...]


def report_document(report: RunReport) -> str:
    """Return it as JSON of ASCII characters alone."""
    return printable_json(msgspec.to_builtins(report))
