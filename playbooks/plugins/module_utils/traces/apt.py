"""Reads who changed packages last from dpkg's log, and from apt's, which knows command and user.

dpkg writes a line for each package, whoever calls it (``dpkg --log``); apt writes a paragraph for each of its
transactions, with ``Requested-By`` where sudo or pkexec was used.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.packages.interest import is_of_interest
from ansible_collections.grapnel.node.plugins.module_utils.traces.change import PackageChange, read_end, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_DPKG = ("/var/log/dpkg.log.1", "/var/log/dpkg.log")  # the older one first
_APT = ("/var/log/apt/history.log.1.gz", "/var/log/apt/history.log.1", "/var/log/apt/history.log")
# 2026-05-01 06:12:03 upgrade libcuda1:amd64 550.1-1 550.2-1; a version that is not there is <none>
_LINE = re.compile(
    r"^([0-9-]{10} [0-9:]{8}) (install|upgrade|remove|purge) ([^ :]+)(?::\S+)? (\S+) (\S+)$", re.MULTILINE
)
_ACTIONS = {"purge": "remove"}
_NONE = "<none>"
_UNFINISHED_S = 3600  # how long a transaction may have taken that did not write its end


@dataclass(frozen=True)
class _Transaction:
    """What apt wrote about one of its runs."""

    begin: int
    end: int
    command: str
    user: str


def read_changes(host: Host) -> dict[str, PackageChange]:
    """Return the last change of each package that the planner decides about."""
    last: dict[str, PackageChange] = {}
    for path in _DPKG:
        last.update(_changes(read_end(host, path)))
    transactions = [one for path in _APT for one in _transactions(read_end(host, path))]
    return {name: _attributed(change, transactions) for name, change in last.items()}


def _changes(log: str) -> Iterator[tuple[str, PackageChange]]:
    """Yield the changes of a log by package, in its order."""
    for when, action, name, _before, after in _LINE.findall(log):
        moment = seconds(when)
        if moment is not None and is_of_interest(name, ""):
            yield name, PackageChange(_ACTIONS.get(action, action), moment, "" if after == _NONE else after)


def _transactions(log: str) -> Iterator[_Transaction]:
    for paragraph in log.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line)
        begin = seconds(fields.get("Start-Date", ""))
        if begin is not None:
            end = seconds(fields.get("End-Date", ""))
            finished = begin + _UNFINISHED_S if end is None else end
            yield _Transaction(begin, finished, fields.get("Commandline", ""), fields.get("Requested-By", ""))


def _attributed(change: PackageChange, transactions: list[_Transaction]) -> PackageChange:
    """Return a change with command and user of the transaction in which it happened."""
    for one in reversed(transactions):
        if one.begin <= change.time <= one.end:
            return replace(change, command=one.command, user=one.user)
    return change
