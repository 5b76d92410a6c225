"""What is decided about one node, in one phase."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from provision.rollout.decision.advance import advance
from provision.rollout.decision.snapshot import Holder, StepResult
from provision.rollout.model import Phase
from tests.provision.rollout.fakes import MINUTE, NOON, record, state, view

if TYPE_CHECKING:
    from datetime import datetime

LATER = NOON + MINUTE
_OF_THE_VIEW = ("gpu_pods", "jobs", "is_cordoned", "is_ready", "reported")
TRAIN = Holder(pid=7, command="train", unit="train.service")


def move(phase: Phase, *, now: datetime = LATER, **more: object) -> tuple[Any, str]:
    """Return what is done on a node in a phase, and what holds it; ``more`` are fields of view or state."""
    more = {"is_disruptive": phase not in (Phase.VERIFY, Phase.RESUME)} | more
    seen = {name: more.pop(name) for name in _OF_THE_VIEW if name in more}
    seen["boot"] = seen.pop("reported", "")
    changes: dict[str, Any] = more.pop("remembered", {})  # type: ignore[assignment]  # the record's
    remembered = record(phase, **changes)
    node = state("n1", view("n1", remembered, **seen), **more)
    return advance(node, remembered, now, NOON)


def ended(phase: Phase, **more: object) -> StepResult:
    return StepResult(phase=phase, ended=NOON, **more)  # type: ignore[arg-type]  # fields of the result, by name
