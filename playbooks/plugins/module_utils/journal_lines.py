"""Reads what a service that did not come up said last, for the message about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.engines import secret_texts, without_quotes
from ansible_collections.grapnel.node.plugins.module_utils.printable import printable

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.host import Host

_LINES = 5
_MOST_CHARACTERS = 300  # of a line
_TIMEOUT_S = 20.0


def told_by(host: Host, unit: str, folder: str | None) -> str:
    """Return the last lines of a unit's log, to be put behind a message; empty when there are none.

    ``folder`` is the engine's configuration, of whose secret files nothing is quoted.
    """
    if not unit:
        return ""
    command = ["journalctl", "--unit", unit, "--lines", str(_LINES), "--output", "cat", "--no-pager", "--quiet"]
    done = host.run(command, _TIMEOUT_S)
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.return_code == 0 else []
    if not lines:
        return ""
    secret = secret_texts(Path(host.path(folder))) if folder else []
    said = " | ".join(printable(without_quotes(line, secret), _MOST_CHARACTERS) for line in lines[-_LINES:])
    return f"; its log ends with: {said}"
