"""The facts about packages on a node with dnf: what is installed, what could be, and in which state the manager is.

Only the cache is asked for what could be installed: how old it is has been decided before.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.machine.memory import remembered
from ansible_collections.grapnel.node.plugins.module_utils.packages import locks
from ansible_collections.grapnel.node.plugins.module_utils.packages.dnf import streams
from ansible_collections.grapnel.node.plugins.module_utils.packages.interest import ENGINE_PACKAGES, WITH_ENGINES
from ansible_collections.grapnel.node.plugins.module_utils.packages.lists import are_due
from ansible_collections.grapnel.node.plugins.module_utils.packages.release import read_release_lock
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm import capabilities, database
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.database import Rpm, is_owned
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.holds import dnf_holds, dnf_leaves_out

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Finished, Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.lists import Freshness

__all__ = ["NAME", "is_owned", "read_available", "read_installed", "read_state", "refresh_lists", "wait_for_lock"]

NAME = "dnf"
_CACHES = ("/var/cache/dnf", "/var/cache/libdnf5")
_SOURCES = "/etc/yum.repos.d"
# Options, plugins, variables and enabled streams; repositories; the release that stands in their addresses.
_SETTINGS = ("/etc/dnf", _SOURCES, "/etc/yum", "/etc/os-release")
_STAMP = "/run/grapnel/package-lists"
_PID_FILES = ("/var/lib/dnf/rpmdb_lock.pid", "/var/cache/dnf/metadata_lock.pid", "/run/dnf.pid", "/run/yum.pid")
_QUERY_TIMEOUT_S = 60.0
_NAMES = ("*nvidia*", "cuda-drivers*", "gdrcopy*", "gdrdrv*", "libcuda", "libnvsdm*", "nvlink5*", "nvlsm*")
_PATTERNS = (*_NAMES, *ENGINE_PACKAGES, *WITH_ENGINES)
_PACKAGE, _PROVIDES = "grapnel-package:", "grapnel-provides:"  # no capability begins like that
# dnf 4 ends each answer with a line feed of its own and dnf 5 does not.
_FORMAT = (
    rf"{_PACKAGE}\t%{{name}}\t%{{epoch}}\t%{{version}}\t%{{release}}\t%{{arch}}\t%{{sourcerpm}}\n%{{requires}}\n"
    rf"{_PROVIDES}\n%{{provides}}\n"
)
# Other versions than a locked one are hidden, and a plan is about just those: what is locked is told as a hold.
_WITHOUT_LOCKS = ("--disableplugin=versionlock", "--disableexcludes=all")
_UNFILTERED = "--disable-modular-filtering"  # streams that are not enabled too: the planner chooses one
_COMPLAINT_LINE = re.compile(r"^(?:Error: |Errors during |Failed )")


def refresh_lists(host: Host, freshness: Freshness, clock: Clock) -> dict[str, Any]:
    """Bring the cache up to date if it is missing or old; returns its age, and the error if there was one."""
    age_s = lists_age_s(host, clock)
    error = None
    if are_due(host, age_s, freshness, clock, [_SOURCES]):
        # It waits for its lock. Told yes, because a repository with signed metadata asks before it takes the key that
        # root has configured for it.
        done = host.run([_command(host), "-q", "-y", "makecache", "--refresh"], freshness.timeout_s)
        error = None if done.return_code == 0 else _complaint(done)
        if error is None:
            host.path(_STAMP).parent.mkdir(parents=True, exist_ok=True, mode=0o755)
            host.path(_STAMP).touch()  # metadata that has not changed is not written again
        age_s = lists_age_s(host, clock)
    return {"lists_age_s": age_s, "lists_error": error}


def lists_age_s(host: Host, clock: Clock) -> int | None:
    """Seconds since dnf last fetched the oldest of its repositories' metadata, or all of it was confirmed for grapnel.

    None when there is none.
    """
    times = [
        place.stat().st_mtime
        for cache in _CACHES
        for repository in host.names(cache)
        if (place := host.path(f"{cache}/{repository}/repodata/repomd.xml")).exists()
    ]
    if not times:
        return None
    stamp = host.path(_STAMP)
    confirmed = stamp.stat().st_mtime if stamp.exists() else 0.0
    return max(0, int(clock.now() - max(min(times), confirmed)))


def wait_for_lock(host: Host, timeout_s: float, clock: Clock) -> dict[str, Any] | None:
    """Return the lock's holder, None as soon as there is none."""
    return locks.wait_for(read_lock_holder, host, timeout_s, clock)


def read_lock_holder(host: Host) -> dict[str, Any] | None:
    """Return the facts ``locked_by``."""
    return database.read_lock_holder(host, _PID_FILES)


def read_installed(host: Host) -> tuple[dict[str, Any], bool]:
    """Return the facts ``packages``, and whether a transaction was interrupted; raises HostError."""
    return database.read_database(host, dnf_holds(host))


def read_state(host: Host) -> dict[str, Any]:
    """Return what else ``package_manager`` says: enabled module streams, excluded engines, a locked release."""
    return {
        "module_streams": streams.enabled_streams(host),
        "left_out": dnf_leaves_out(host, ENGINE_PACKAGES),
        "release_lock": read_release_lock(host),
    }


def read_available(host: Host) -> dict[str, Any]:
    """Return the facts ``available``: all versions of the packages that the planner decides about, newest last."""
    return remembered(host, "dnf-available", lambda: _inputs(host), lambda: _ask(host))


def _inputs(host: Host) -> Iterator[Path]:
    """Yield what dnf answers from: its settings and metadata, and not what it computes from them while it answers."""
    metadata = (f"{cache}/{name}/repodata" for cache in _CACHES for name in host.names(cache))
    for top in (host.path(place) for place in (*_SETTINGS, *metadata)):
        yield top
        yield from sorted(top.rglob("*"))


def _ask(host: Host) -> dict[str, Any]:
    found = [each for each in _parse(_query(host)) if each[0].is_of_interest]
    providers = capabilities.providers((rpm.name, provided) for rpm, _, provided in found)
    of_stream = streams.streams_of_packages(host) if found else {}
    available: dict[str, dict[str, Any]] = {}
    for rpm, required, _ in found:
        available.setdefault(rpm.name, {})[rpm.edition] = {
            "version": rpm.edition,
            "source": rpm.source,
            "depends": capabilities.resolve(rpm.name, required, providers),
            "module_stream": of_stream.get(f"{rpm.name}-{rpm.epoch}:{rpm.version}-{rpm.release}.{rpm.architecture}"),
            "fetchable": True,
        }
    return {name: list(versions.values()) for name, versions in sorted(available.items())}


def _query(host: Host) -> str:
    command = [_command(host), "-q", "-C", *_WITHOUT_LOCKS, "repoquery", "--available", "--qf", _FORMAT]
    done = host.run([*command, _UNFILTERED, *_PATTERNS], _QUERY_TIMEOUT_S)
    if done.return_code != 0:  # dnf 5 knows some of the options by other names
        done = host.run([_command(host), "-q", "-C", "repoquery", "--qf", _FORMAT, *_PATTERNS], _QUERY_TIMEOUT_S)
    return done.stdout


def _parse(text: str) -> Iterator[tuple[Rpm, list[str], list[str]]]:
    """Yield each package with what it requires and what it provides."""
    for block in text.split(_PACKAGE)[1:]:
        head, _, rest = block.partition("\n")
        fields = head.split("\t")[1:]
        if len(fields) == 6:  # noqa: PLR2004 - the fields of _FORMAT
            required, _, provided = rest.partition(_PROVIDES)
            yield Rpm(*fields), required.split("\n"), provided.split("\n")


def _command(host: Host) -> str:
    return next((name for name in ("dnf", "dnf5", "dnf-3") if host.find_command(name)), "dnf")


def _complaint(done: Finished) -> str:
    lines = [line.strip() for line in done.stderr.splitlines() if _COMPLAINT_LINE.match(line)]
    return "; ".join(lines) or done.complaints
