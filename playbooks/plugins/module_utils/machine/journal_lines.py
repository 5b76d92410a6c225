"""Reads what a service that did not come up said last, for the message about it."""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.engines.files import folder_of
from ansible_collections.grapnel.node.plugins.module_utils.engines.found import secret_texts, without_quotes
from ansible_collections.grapnel.node.plugins.module_utils.engines.of_kubernetes import log_of
from ansible_collections.grapnel.node.plugins.module_utils.engines.table import DISTRIBUTIONS
from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_LINES = 5
_MOST_CHARACTERS = 300  # of a line
_TAIL_BYTES = 16 * 1024
_TIMEOUT_S = 20.0


def told_by(host: Host, unit: str, engine: str) -> str:
    """Return the last lines of a service's log, to be put behind a message; empty when there are none.

    Nothing is quoted of files of the engine's that not everybody may read.
    """
    if not unit:
        return ""
    lines = [*_lines_of_journal(host, unit), *_lines_of_file(host, engine)]
    folder = folder_of(host, engine)
    secret = secret_texts(Path(host.path(folder))) if folder else []
    said = " | ".join(printable(without_quotes(line, secret), _MOST_CHARACTERS) for line in lines)
    return f"; its log ends with: {said}" if said else ""


def _lines_of_journal(host: Host, unit: str) -> list[str]:
    command = ["journalctl", "--unit", unit, "--lines", str(_LINES), "--output", "cat", "--no-pager", "--quiet"]
    done = host.run(command, _TIMEOUT_S)
    return _last_lines(done.stdout) if done.return_code == 0 else []


def _lines_of_file(host: Host, engine: str) -> list[str]:
    """Return the end of containerd's own log, where k3s and RKE2 keep one."""
    path = log_of(host, engine) if engine in DISTRIBUTIONS else None
    if path is None:
        return []
    with suppress(OSError), host.open(path) as stream:
        stream.seek(max(0, os.fstat(stream.fileno()).st_size - _TAIL_BYTES))
        return _last_lines(stream.read(_TAIL_BYTES).decode("utf-8", "replace"))
    return []


def _last_lines(text: str) -> list[str]:
    return list(deque((line.strip() for line in text.splitlines() if line.strip()), _LINES))
