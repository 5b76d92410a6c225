"""Reads who changed packages last from dnf's database of transactions; rpm alone leaves nothing there.

dnf 4: ``libdnf/swdb/sql/create_tables.sql`` of libdnf; dnf 5: ``libdnf/transaction/db/sql/create_tables.sql``, whose
table of names was called otherwise before its version 1.1. The user is who logged in, also behind sudo.
"""

from __future__ import annotations

from contextlib import closing
from itertools import count
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.packages.interest import is_of_interest
from ansible_collections.grapnel.node.plugins.module_utils.traces.change import PackageChange

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_DNF_4 = ("/usr/lib/sysimage/dnf/history.sqlite", "/var/lib/dnf/history.sqlite")
_DNF_5 = "/usr/lib/sysimage/libdnf5/transaction_history.sqlite"
_ROWS = 50_000  # the newest
_CHUNK, _CHUNKS = 1_000_000, 20  # instructions of SQLite's machine: seconds
_LOCK_TIMEOUT_S = 2.0
# By number: libdnf's TransactionItemAction. What is replaced has a number of its own, and is left out.
_ACTIONS_4 = {1: "install", 2: "upgrade", 4: "install", 6: "upgrade", 8: "remove", 9: "install"}
_ACTIONS_5 = {1: "install", 2: "upgrade", 3: "upgrade", 4: "install", 5: "remove"}
_FROM = f"""
    i.action{{}}, t.dt_begin, t.{{}}, t.user_id
    FROM trans_item i JOIN trans t ON t.id = i.trans_id JOIN rpm r ON r.item_id = i.item_id {{}}
    ORDER BY i.id DESC LIMIT {_ROWS}
"""
_VERSION = "r.epoch, r.version, r.release"
_QUERY_4 = f"SELECT r.name, {_VERSION}, {_FROM.format('', 'cmdline', '')}"  # without the program's own name
_QUERY_5 = f"SELECT n.name, {_VERSION}, {_FROM.format('_id', 'description', 'JOIN pkg_name n ON n.id = r.name_id')}"
_QUERIES = (  # dnf 5 took the place of dnf 4: what it knows of a package is newer
    *((path, _ACTIONS_4, _QUERY_4) for path in _DNF_4),
    (_DNF_5, _ACTIONS_5, _QUERY_5.replace("pkg_name", "pkg_names")),
    (_DNF_5, _ACTIONS_5, _QUERY_5),
)


def read_changes(host: Host) -> dict[str, PackageChange]:
    """Return the last change of each package that the planner decides about; none where no database can be read."""
    last: dict[str, PackageChange] = {}
    users = _users(host)
    for path, actions, query in _QUERIES:
        last.update(_last(_rows(host, path, query), actions, users))
    return last


def _rows(host: Host, path: str, query: str) -> list[tuple[Any, ...]]:
    """Return what a database answers within its time; nothing where it is absent, broken, or another one."""
    try:
        import sqlite3  # noqa: PLC0415 - a part of Python that distributions may leave out
    except ImportError:
        return []
    try:
        with host.open(path):  # a regular file
            place = host.path(path).absolute().as_uri()
        # Without a write-ahead log the file is all, and SQLite is kept from making one beside it.
        how = "mode=ro" if host.path(f"{path}-wal").exists() else "immutable=1"
        with closing(sqlite3.connect(f"{place}?{how}", uri=True, timeout=_LOCK_TIMEOUT_S)) as database:
            chunks = count()
            database.set_progress_handler(lambda: next(chunks) > _CHUNKS, _CHUNK)
            return database.execute(query).fetchall()
    except (OSError, ValueError, sqlite3.Error):
        return []


def _last(
    rows: Sequence[tuple[Any, ...]], actions: Mapping[int, str], users: Mapping[int, str]
) -> dict[str, PackageChange]:
    """Return the first row of each package as a change; rows are the newest first."""
    last: dict[str, PackageChange] = {}
    for name, epoch, version, release, action, moment, command, user in rows:
        known = actions.get(action)
        if known is None or not isinstance(name, str) or name in last or not is_of_interest(name, ""):
            continue
        whole = f"{epoch}:{version}-{release}" if epoch else f"{version}-{release}"
        after = "" if known == "remove" else whole
        last[name] = PackageChange(known, _time(moment), after, _command(command), users.get(user, ""))
    return last


def _command(text: object) -> str:
    """Return a command as it was typed: dnf 4 leaves its own name out."""
    words = text if isinstance(text, str) else ""
    return words if not words or words.startswith(("dnf", "/")) else f"dnf {words}"


def _time(moment: object) -> int:
    return max(0, moment) if isinstance(moment, int) else 0


def _users(host: Host) -> dict[int, str]:
    """Return the users of the machine by number; nobody has that of a process that nobody logged in for."""
    entries = [line.split(":") for line in (host.read_text("/etc/passwd") or "").splitlines()]
    known = [(one[0], one[2]) for one in entries if one[2:] and one[2].isdecimal()]
    return {int(number): f"{name} ({number})" for name, number in known}
