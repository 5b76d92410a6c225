"""`grapnel report`: shows what happened in a run, as a page for browsers; changes nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from provision.base.errors import ExitCode, GrapnelError, os_reason
from provision.cli.session.fleet import inventories_of
from provision.cli.terminal import say
from provision.declaration.fleet.sources import inventory_key
from provision.report.console import make_console
from provision.report.history import render_runs
from provision.report.runs.digest import digest
from provision.report.runs.model import report_document
from provision.report.runs.store import Shelf, runs_folder
from provision.report.terminal import show

if TYPE_CHECKING:
    import argparse

    from provision.report.runs.model import RunReport
    from provision.report.runs.store import RunFolder


def run(args: argparse.Namespace) -> int:
    """Read a run and write its report."""
    shelf = Shelf(runs_folder(os.environ, inventory_key(inventories_of(args), Path.cwd())))
    if args.list:
        return list_runs(shelf)
    folder = shelf.find(args.name)
    report = read_report(folder)
    if args.json:
        print(report_document(report))
    else:
        _write(report, args.output or folder.page)
    return ExitCode.DONE


def read_report(folder: RunFolder, *, details: bool = True) -> RunReport:
    """Return what happened in a run; raises GrapnelError where nothing can be known of it."""
    report = digest(
        folder.read(details=details),
        is_going_on=folder.is_going_on(),
        log=str(folder.log),
        artifacts=str(folder.artifacts),
    )
    if report is None:
        raise GrapnelError(
            f"nothing was written down of run {folder.name} in {folder.path}",
            hint="it was killed as it began, or its disk was full; `grapnel report --list` shows the others",
        )
    return report


def _write(report: RunReport, output: Path) -> None:
    from provision.report.run_page import render_page  # noqa: PLC0415 - 60 ms: Jinja

    page = render_page(report)
    if str(output) == "-":
        sys.stdout.write(page)
        return
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(page)
    except OSError as error:
        raise GrapnelError(f"{output}: {os_reason(error)}", hint="name another place with --output") from error
    say(str(output))


def list_runs(shelf: Shelf) -> int:
    """Print the runs that are kept, the newest first."""
    shelf.find(None)
    reports = []
    for folder in shelf.runs():
        try:
            reports.append(read_report(folder, details=False))
        except GrapnelError as error:
            say(f"· {error.message}", sys.stderr)
    show(make_console(sys.stdout), render_runs(reports))
    return ExitCode.DONE
