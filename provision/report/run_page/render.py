"""Renders the page: everything is escaped, and no browser fetches or runs anything because of it."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from typing import TYPE_CHECKING

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from provision.base.printable import printable
from provision.declaration.fleet.series import in_series
from provision.report.run_page.lanes import lanes_of
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
    from provision.report.runs.model import RunReport

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
