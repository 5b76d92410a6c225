"""Defines what is written down of a run while it goes on: one line of JSON for each event.

The contract is ``docs/contracts/run-event``. Keys are short where there is a line for each step of each node; a reader
skips kinds that it does not know, and a last line that was cut off.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec

from provision.base.decoding import decoder_of
from provision.planning.node_plan import Derived, Item, Problem

Time = Annotated[datetime, msgspec.Meta(tz=True)]
SCHEMA: Final = "grapnel.dev/run-event/v1alpha1"


class _Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event"):
    """Whatever happens at a time."""

    time: Time


class Began(_Event, frozen=True, kw_only=True, tag="began"):
    """The first line: who began what. ``command`` are the words of the command line."""

    schema: Literal["grapnel.dev/run-event/v1alpha1"]
    run: str
    command: tuple[str, ...]
    by: str
    grapnel: str
    inventory: str
    nodes: int


class Planned(_Event, frozen=True, kw_only=True, tag="planned"):
    """Nodes with equal plans. Texts of files are not among it."""

    nodes: tuple[str, ...]
    items: tuple[Item, ...] = ()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    derived: tuple[Derived, ...] = ()


class PassBegan(_Event, frozen=True, kw_only=True, tag="pass"):
    """A node's plan is applied, for the first or a further time."""

    node: str
    number: int


class Stage(_Event, frozen=True, kw_only=True, tag="stage"):
    """A node's driver is being staged, or (``done``) is staged."""

    node: str
    done: bool = False


class StepBegan(_Event, frozen=True, kw_only=True, tag="step"):
    """A step of a role began on a node."""

    node: str
    step: str


class StepEnded(_Event, frozen=True, kw_only=True, tag="step-ended"):
    """It ended. ``seconds`` is its duration, ``output`` the last lines of one that failed."""

    node: str
    step: str
    seconds: float
    outcome: str
    message: str = ""
    output: tuple[str, ...] = ()


class PhaseBegan(_Event, frozen=True, kw_only=True, tag="phase"):
    """A node's change goes on to a phase. ``reason`` is what went wrong before, if something did."""

    node: str
    phase: str
    reason: str = ""


class Waited(_Event, frozen=True, kw_only=True, tag="waits"):
    """A node does not move, and why; without a reason it moves again."""

    node: str
    reason: str = ""


class Noted(_Event, frozen=True, kw_only=True, tag="note"):
    """Something else that is worth a line; without a node it is about all of them."""

    text: str
    node: str = ""


class NodeEnded(_Event, frozen=True, kw_only=True, tag="node-ended"):
    """Nothing more is done about a node. Versions are there where its driver was changed."""

    node: str
    result: str
    is_good: bool
    changes: int = 0
    passes: int = 0
    task: str = ""
    message: str = ""
    output: tuple[str, ...] = ()
    note: str = ""
    origin: str = ""
    target: str = ""
    out_of_service_seconds: float | None = None
    is_out: bool = False


class Ended(_Event, frozen=True, kw_only=True, tag="ended"):
    """The last line. ``error`` ended the whole run; ``declined``: a person was asked, and nothing was changed."""

    exit_code: int
    declined: bool = False
    error: str = ""
    hint: str = ""


class Cut(_Event, frozen=True, kw_only=True, tag="cut"):
    """The file has its greatest size: steps are no longer written down, results are."""


RunEvent = (
    Began | Planned | PassBegan | Stage | StepBegan | StepEnded | PhaseBegan | Waited | Noted | NodeEnded | Ended | Cut
)
STEPS: Final = b'{"event":"step'  # how lines about steps begin
_ENCODER = msgspec.json.Encoder()
_DECODER = decoder_of(RunEvent)


def encode(event: RunEvent) -> bytes:
    """Return an event as one line."""
    return _ENCODER.encode(event) + b"\n"


def decode(line: bytes) -> RunEvent | None:
    """Return the event of a line, None for one that is cut off or of a kind that is not known here."""
    try:
        event: RunEvent = _DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return event
