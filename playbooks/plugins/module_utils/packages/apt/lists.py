"""Reads what apt could install, and refreshes apt's lists, the one thing that gathering facts may change.

``apt-cache`` answers in a second from its memory-mapped cache; python-apt has no index by source package, and
looking every record up takes minutes with compressed lists.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.dpkg import (
    Paragraph,
    is_of_interest,
    parse_paragraphs,
    source_of,
)
from ansible_collections.grapnel.node.plugins.module_utils.packages.interest import (
    ENGINE_PACKAGES,
    NAME_PATTERN,
    OTHERS_PATTERN,
    PREBUILT_PATTERN,
    SOURCE_PATTERN,
)
from ansible_collections.grapnel.node.plugins.module_utils.packages.lists import are_due
from ansible_collections.grapnel.node.plugins.module_utils.packages.reach import without_passwords

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Finished, Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.lists import Freshness

_LISTS = "/var/lib/apt/lists"
_STAMPS = (_LISTS, f"{_LISTS}/partial", "/var/lib/apt/periodic/update-success-stamp")
_SOURCES = "/etc/apt/sources.list.d"
_QUERY_TIMEOUT_S = 30.0
_LOCK_RETRY_S = 1.0
# So that a source that does not answer is named, before the time for all of them is up.
_FETCH = ("-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20", "-o", "Acquire::https::Timeout=20")
_LOCKED = re.compile(r"Could not get lock|Unable to lock directory")
_RELEASE = re.compile(r"^[A-Za-z0-9][A-Za-z0-9.+_~-]*$")
_NAME = re.compile(r"^[a-z0-9][a-z0-9+.-]+")


def refresh_lists(host: Host, freshness: Freshness, clock: Clock) -> dict[str, Any]:
    """Bring the lists up to date if they are missing or old; returns their age, and the error if there was one."""
    age_s = lists_age_s(host, clock)
    error = None
    if are_due(host, age_s, freshness, clock, [_SOURCES]):
        error = _update(host, freshness.timeout_s, clock)
        if error is None:
            host.path(f"{_LISTS}/partial").mkdir(parents=True, exist_ok=True)
            host.path(f"{_LISTS}/partial").touch()  # lists that have not changed are not written again
        age_s = lists_age_s(host, clock)
    return {"lists_age_s": age_s, "lists_error": error}


def lists_age_s(host: Host, clock: Clock) -> int | None:
    """Seconds since apt last fetched its lists, None when it has none."""
    if not any("Packages" in name for name in host.names(_LISTS)):
        return None
    times = [host.path(stamp).stat().st_mtime for stamp in _STAMPS if host.path(stamp).exists()]
    return max(0, int(clock.now() - max(times)))


def _update(host: Host, timeout_s: float, clock: Clock) -> str | None:
    """Run ``apt-get update`` until it gets its lock or time is up; returns the error."""
    deadline = clock.now() + timeout_s
    command = ["apt-get", "-q", "-o", "APT::Update::Error-Mode=any", *_FETCH, "update"]
    while True:
        done = host.run(command, max(1.0, deadline - clock.now()))
        if done.return_code == 0:
            return None
        if not _LOCKED.search(done.stderr) or clock.now() + _LOCK_RETRY_S >= deadline:
            return _errors(done)
        clock.sleep(_LOCK_RETRY_S)


def _errors(done: Finished) -> str:
    lines = done.stderr.splitlines()  # what is wrong with a signature, apt only warns of
    errors = [line[2:].strip() for line in lines if line.startswith(("E:", "W: GPG error:"))]
    return without_passwords("; ".join(errors) or done.complaint)


def read_available(host: Host) -> dict[str, Any]:
    """Return the facts ``available``: all versions, newest first, of the packages that the planner decides about.

    Modules that are built for one kernel are listed for the kernels that the node has: an archive has thousands.
    """
    shown = host.run(["apt-cache", "show", *_patterns(host)], _QUERY_TIMEOUT_S)
    available: dict[str, Any] = {}
    for paragraph in parse_paragraphs(shown.stdout):
        if is_of_interest(paragraph):
            versions = available.setdefault(paragraph["Package"], [])
            if all(one["version"] != paragraph["Version"] for one in versions):
                versions.append(_available(paragraph))
    return dict(sorted(available.items()))


def _patterns(host: Host) -> list[str]:
    """Return what to ask for, a pattern or a name each; a name is taken as it is, with no pattern in it."""
    releases = sorted({*host.names("/lib/modules"), os.uname().release})
    kernels = "|".join(re.escape(name) for name in releases if _RELEASE.match(name))
    return [
        f'?or(?source-package("{SOURCE_PATTERN}"),?and(?name("{NAME_PATTERN}"),?not(?name("{OTHERS_PATTERN}"))))',
        *([f'?name("{PREBUILT_PATTERN}.*({kernels})$")'] if kernels else []),
        *(f"?exact-name({name})" for name in ENGINE_PACKAGES),
    ]


def _available(paragraph: Paragraph) -> dict[str, Any]:
    return {
        "version": paragraph["Version"],
        "source": source_of(paragraph),
        "depends": names_in(paragraph.get("Pre-Depends", ""), paragraph.get("Depends", "")),
        "fetchable": "Status" not in paragraph,  # a record of dpkg's database: no list has this version
    }


def names_in(*fields: str) -> list[str]:
    """Return the names of the first alternatives, which is what apt prefers, without versions and architectures."""
    groups = (group.strip() for field in fields for group in field.split(","))
    found = (_NAME.match(group) for group in groups)
    return sorted({match.group() for match in found if match})
