"""Renders what happened in a run as JSON; the contract is ``docs/contracts/run-report``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from provision.base.printable import printable_json

if TYPE_CHECKING:
    from provision.report.runs.model import RunReport


def report_document(report: RunReport) -> str:
    """Return it as JSON of ASCII characters alone."""
    return printable_json(msgspec.to_builtins(report))
