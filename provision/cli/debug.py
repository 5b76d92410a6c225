"""Shows with `--debug` the bugs that spoiled one node and not the run."""

from __future__ import annotations

import logging
import sys

from provision.base.printable import printable


class _ToStandardError(logging.Handler):
    """Prints records so that what a node wrote and a traceback quotes stays text."""

    def emit(self, record: logging.LogRecord) -> None:
        for line in self.format(record).split("\n"):
            print(printable(line), file=sys.stderr)


def show_bugs() -> None:
    """Print everything that this program logs, and nothing of the libraries."""
    log = logging.getLogger("provision")
    log.handlers = [_ToStandardError()]
    log.setLevel(logging.DEBUG)
    log.propagate = False
