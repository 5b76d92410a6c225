"""Renders the page: everything is escaped, and no browser fetches or runs anything because of it."""

from __future__ import annotations

import base64
import hashlib
from collections import defaultdict
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Final

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from provision.base.printable import printable
from provision.declaration.fleet.series import in_series
from provision.report.run_page.words import (
    because,
    clock,
    moment,
    node_names,
    result_words,
    tone_of,
    verdict,
    versions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from provision.report.runs.model import NodeReport, RunReport, Span

NODES: int = 5000  # in the table of all of them; a page of more would be of no use
FAILURES: int = 60


def render_page(report: RunReport) -> str:
    """Return the page of a run."""
    style = _read("page.css")
    return (
        _environment()
        .from_string(_read("page.html.j2"))
        .render(
            report=report,
            verdict=verdict(report),
            lanes=lanes_of(report),
            style=Markup(style),  # noqa: S704 - our own file
            policy=_policy(style),
            most_nodes=NODES,
            most_failures=FAILURES,
        )
    )


def _policy(style: str) -> str:
    """Return the content security policy: our own style by its digest, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _environment() -> Environment:
    """Return where every value is escaped, and spelled out where it is not printable."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_shown
    )
    environment.filters |= {
        "because": because,
        "clock": clock,
        "moment": moment,
        "names": node_names,
        "runs": in_series,
        "tone": tone_of,
        "result": result_words,
        "versions": versions,
    }
    return environment


def _shown(value: object) -> object:
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _read(name: str) -> str:
    return resources.files("provision.report.run_page").joinpath(name).read_text(encoding="utf-8")


# Lays nodes out along the time of the run: a lane each, what needs somebody first, equal ones as one.

LANES: Final = 40
TICKS: Final = 8
_NICE: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
_SMALLEST: Final = 0.25  # of the whole width, in percent: that a bar can be seen


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar: ``left`` and ``width`` in percent."""

    left: float
    width: float
    kind: str
    tone: str
    title: str


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane for one node, or for several that took their time alike."""

    nodes: tuple[str, ...]
    tone: str
    result: str
    took: str
    phases: tuple[Bar, ...]
    steps: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Tick:
    """A moment on the axis."""

    left: float
    words: str


@dataclass(frozen=True, slots=True)
class Lanes:
    """The whole picture. ``more`` nodes have no lane."""

    lanes: tuple[Lane, ...]
    ticks: tuple[Tick, ...]
    more: int


def lanes_of(report: RunReport) -> Lanes:
    """Return the lanes of the nodes on which something was done."""
    whole = max(report.seconds, 1.0)
    busy = [node for node in report.nodes if node.began_seconds is not None]
    alike: dict[tuple[object, ...], list[NodeReport]] = defaultdict(list)
    for node in busy:
        alike[_looks(node, whole)].append(node)
    ranked = sorted(alike.values(), key=lambda nodes: (nodes[0].is_good, nodes[0].began_seconds, nodes[0].name))
    shown = ranked[:LANES]
    return Lanes(
        lanes=tuple(_lane(nodes, whole) for nodes in shown),
        ticks=tuple(_ticks(whole)),
        more=sum(len(nodes) for nodes in ranked[LANES:]),
    )


def _looks(node: NodeReport, whole: float) -> tuple[object, ...]:
    """Return what nodes in one lane have in common: their bars differ by less than can be seen."""
    fine = whole / 100
    bars = tuple((span.kind, span.name, span.outcome, round(span.began_seconds / fine)) for span in node.spans)
    return node.is_good, node.result, bars


def _lane(nodes: Sequence[NodeReport], whole: float) -> Lane:
    first = nodes[0]
    took = sorted(node.seconds or 0.0 for node in nodes)
    spread = clock(took[0]) if clock(took[0]) == clock(took[-1]) else f"{clock(took[0])} to {clock(took[-1])}"
    return Lane(
        nodes=tuple(node.name for node in nodes),
        tone=tone_of(first.result, is_good=first.is_good),
        result=first.result,
        took=spread,
        phases=tuple(_bars((span for span in first.spans if span.kind != "step"), whole)),
        steps=tuple(_bars((span for span in first.spans if span.kind == "step"), whole)),
    )


def _bars(spans: Iterable[Span], whole: float) -> Iterable[Bar]:
    for span in spans:
        seconds = whole - span.began_seconds if span.seconds is None else span.seconds
        left = min(100.0, 100 * span.began_seconds / whole)
        width = min(100 - left, max(_SMALLEST, 100 * seconds / whole))
        lasted = "not ended" if span.seconds is None else clock(span.seconds)
        yield Bar(round(left, 2), round(width, 2), span.kind, _tone(span), f"{span.name}: {lasted}")


def _tone(span: Span) -> str:
    if span.outcome in ("failed", "unreachable") or span.name == "rollback":
        return "bad"
    if span.seconds is None:
        return "warn"
    return "ok" if span.outcome == "changed" else "work" if span.kind == "step" else f"phase {span.name}"


def _ticks(whole: float) -> Iterable[Tick]:
    every = next((step for step in _NICE if whole / step <= TICKS), _NICE[-1])
    number = 0
    while number * every <= whole and number <= 2 * TICKS:
        at = number * every
        yield Tick(round(100 * at / whole, 2), clock(at) if at else "0")
        number += 1
