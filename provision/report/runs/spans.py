"""Puts together what took time on one node. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from provision.apply.runner import TaskOutcome
from provision.report.runs.model import Span

if TYPE_CHECKING:
    from datetime import datetime

SPANS: Final = 120  # of one node
_SHORT_S: Final = 0.5  # a step that takes less, and changes nothing, is not worth a bar
_QUIET: Final = frozenset({TaskOutcome.OK.value, TaskOutcome.SKIPPED.value})
Kind = Literal["step", "phase", "stage"]


@dataclass(slots=True)
class NodeTimes:
    """What a node did when; ``origin`` is the beginning of the run."""

    origin: datetime
    began: float | None = None
    ended: float | None = None
    _open: dict[Kind, tuple[str, float]] = field(default_factory=dict)
    _spans: list[Span] = field(default_factory=list)

    def at(self, time: datetime) -> float:
        """Return a moment as seconds of the run; a clock that was set back ends none before it began."""
        return round(max(0.0, (time - self.origin).total_seconds()), 2)

    def begin(self, kind: Kind, name: str, time: datetime) -> None:
        """Note that something began; what was open of its kind ends with it."""
        at = self.at(time)
        self.began = at if self.began is None else self.began
        self.end(kind, time)
        self._open[kind] = (name, at)

    def end(self, kind: Kind, time: datetime, outcome: str = "") -> None:
        """Note that what is open of a kind has ended."""
        if (found := self._open.pop(kind, None)) is not None:
            name, began = found
            seconds = round(max(0.0, self.at(time) - began), 2)
            self._add(Span(kind=kind, name=name, began_seconds=began, seconds=seconds, outcome=outcome))

    def _add(self, span: Span) -> None:
        is_short = span.kind == "step" and (span.seconds or 0) < _SHORT_S
        if not (is_short and span.outcome in _QUIET):
            self._spans.append(span)

    def finish(self, time: datetime) -> None:
        """Note that nothing more is done about the node; the first time counts."""
        if self.ended is None:
            for kind in tuple(self._open):
                self.end(kind, time)
            self.ended = self.at(time)

    @property
    def doing(self) -> str:
        """What it was doing last, empty where it did nothing."""
        kinds: tuple[Kind, ...] = ("step", "phase", "stage")
        return next((self._open[kind][0] for kind in kinds if kind in self._open), "")

    def spans(self) -> tuple[Span, ...]:
        """Return what took time, in order: where there is too much, the longest of it."""
        open_ones = [
            Span(kind=kind, name=name, began_seconds=began, seconds=None, outcome="")
            for kind, (name, began) in self._open.items()
        ]
        found = [*self._spans, *open_ones]
        if len(found) > SPANS:
            longest = sorted(found, key=_weight, reverse=True)[:SPANS]
            found = longest
        return tuple(sorted(found, key=lambda span: (span.began_seconds, span.kind)))


def _weight(span: Span) -> tuple[bool, float]:
    """Return what makes a span worth keeping: it went wrong or had not ended, or it took long."""
    is_telling = span.kind != "step" or span.seconds is None or span.outcome in ("failed", "unreachable")
    return is_telling, span.seconds or 0.0
