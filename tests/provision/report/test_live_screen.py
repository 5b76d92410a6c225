"""What is left on a real screen: lines that were printed while the picture moved are neither erased nor doubled."""

from __future__ import annotations

import io
import re
import sys
import time

import pytest
from rich.console import Console

from provision.apply.model import NodeFinished, NodeResult, PassStarted, Status
from provision.report.progress import live as live_module
from provision.report.progress.live import LiveView

CODES = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|(\r)|(\n)|([^\x1b\r\n]+)")


def screen(output: str) -> list[str]:
    """Return the lines of a terminal that understands what rich sends to it."""
    lines, row, column = [""], 0, 0
    for argument, code, carriage, newline, text in CODES.findall(output):
        if carriage:
            column = 0
        elif newline:
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif text:
            lines[row] = lines[row][:column].ljust(column) + text + lines[row][column + len(text) :]
            column += len(text)
        elif code == "A":
            row = max(0, row - int(argument or 1))
        elif code == "K":
            lines[row] = ""
    return [line.rstrip() for line in lines if line.strip()]


@pytest.mark.slow
def test_every_line_that_was_printed_stays_and_the_picture_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "REFRESH_S", 0.0001)
    former = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    nodes = [f"n{number:03}" for number in range(150)]
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, force_interactive=True, width=60, height=24, color_system=None)
    try:
        with LiveView(console, nodes, time.monotonic) as view:
            for node in nodes:
                view(PassStarted(node, 1, 1))
                view(NodeFinished(NodeResult(node, Status.CONVERGED, 1, 1)))
    finally:
        sys.setswitchinterval(former)

    assert [line.split()[1] for line in screen(stream.getvalue())] == nodes
