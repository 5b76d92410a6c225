"""Reads who changed packages last from libzypp's history, which all programs on libzypp write.

Columns after time and action: name, version, architecture, and who asked for it (empty: a dependency). A line
``command`` comes before those of its transaction (https://opensuse.github.io/libzypp/group__g__ZyppHistory.html).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.packages.interest import is_of_interest
from ansible_collections.grapnel.node.plugins.module_utils.traces.change import PackageChange, read_end, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_HISTORY = "/var/log/zypp/history"
_COLUMNS = 4  # time, action, name, version


def read_changes(host: Host) -> dict[str, PackageChange]:
    """Return the last change of each package that the planner decides about."""
    last: dict[str, PackageChange] = {}
    user, command = "", ""
    for line in read_end(host, _HISTORY).splitlines():
        columns = [column.strip() for column in line.split("|")]
        if len(columns) < _COLUMNS or line.startswith("#"):
            continue
        if columns[1] == "command":
            user, command = columns[2], columns[3].replace("'", "")
        elif columns[1] in ("install", "remove") and is_of_interest(columns[2], ""):
            change = _change(columns, user, command)
            last.update({} if change is None else {columns[2]: change})
    return last


def _change(columns: Sequence[str], user: str, command: str) -> PackageChange | None:
    moment = seconds(columns[0])
    if moment is None:
        return None
    version = columns[3] if columns[1] == "install" else ""
    return PackageChange(columns[1], moment, version, command, user)
