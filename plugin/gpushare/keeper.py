"""The daemon's half: says on the Node which cards it offers in units, and which pod holds how many.

Used in the event loop's thread. Nothing is said that has been said already, and nothing at all while no card is offered
in units; writing to the Node is `node_object`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.gpushare.books.model import Report
from plugin.gpushare.books.report import ANNOTATION, MAX_BYTES, holdings_of, render_report

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plugin.gpushare.books.model import Card
    from plugin.kubelet.pod_resources.attribution import DeviceAssignment

_GIGA = 1_000_000_000


class UnitKeeper:
    """`annotate` puts annotations on the Node, None for one that is to go."""

    def __init__(self, annotate: Callable[[Mapping[str, str | None]], None]) -> None:
        self._annotate = annotate
        self._report: Report | None = None
        self._assignments: tuple[DeviceAssignment, ...] = ()
        self._asked_ns = 0
        self._allocated_ns = 0  # when units were last given away
        self._was_offered = False

    def offered(self, resource: str, unit_bytes: int, cards: tuple[Card, ...]) -> None:
        """Take what is offered in units: at the start, and at each change. No cards: nothing is, any more."""
        if not cards:
            if self._was_offered:
                self._annotate({ANNOTATION: None})
            self._report, self._was_offered = None, False
            return
        self._was_offered = True
        report = Report(resource, unit_bytes, cards, self._asked_ns, holdings_of(self._assignments, resource))
        before = self._report
        if before is None or report[:3] != before[:3]:
            self._say(report)

    def allocated(self, resource: str, at: float) -> None:
        """Hear that a container was given devices: what the kubelet says from then on is said, whatever it is."""
        if self._report is not None and resource == self._report.resource:
            self._allocated_ns = int(at * _GIGA)

    def listed(self, assignments: tuple[DeviceAssignment, ...], asked_at: float) -> None:
        """Take what the kubelet lists; `asked_at` is when it was asked, in seconds since the epoch."""
        self._assignments, self._asked_ns = assignments, int(asked_at * _GIGA)
        report = self._report
        if report is None:
            return
        holdings = holdings_of(assignments, report.resource)
        is_newer = report.at_ns <= self._allocated_ns < self._asked_ns
        if is_newer or not report.at_ns or holdings != report.holdings:
            self._say(report._replace(at_ns=self._asked_ns, holdings=holdings))

    def _say(self, report: Report) -> None:
        self._report = report
        text = render_report(report)
        if len(text) > MAX_BYTES:  # rather no pods than no cards: what is not known is not given away
            text = render_report(report._replace(at_ns=0, holdings=()))
        self._annotate({ANNOTATION: text})
