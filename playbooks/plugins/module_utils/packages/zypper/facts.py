"""The facts about packages on a node with zypper: what is installed, what could be, the state of the manager."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from ansible_collections.grapnel.node.plugins.module_utils.packages import locks
from ansible_collections.grapnel.node.plugins.module_utils.packages.interest import ENGINE_PACKAGES, WITH_ENGINES
from ansible_collections.grapnel.node.plugins.module_utils.packages.lists import are_due
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm import capabilities, database
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.database import Rpm, is_owned
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.holds import zypper_holds, zypper_leaves_out
from ansible_collections.grapnel.node.plugins.module_utils.packages.zypper.metadata import has_metadata, read_metadata

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Finished, Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.lists import Freshness

__all__ = ["NAME", "is_owned", "read_available", "read_installed", "read_state", "refresh_lists", "wait_for_lock"]

NAME = "zypper"
_RAW = "/var/cache/zypp/raw"
_SOLV = "/var/cache/zypp/solv"
_PID_FILES = ("/run/zypp.pid", "/run/zypp-rpm.pid")
_SOURCES = "/etc/zypp/repos.d"
_QUERY_TIMEOUT_S = 60.0
_MAX_ANSWER = 32 << 20  # characters
_ZYPPER = ["zypper", "--non-interactive", "--quiet"]
_NAMES = ("nvidia", "cuda-drivers", "gdrcopy", "libnvsdm", "nvlink5", "nvlsm", "nv-prefer")
_WORDS = (*_NAMES, *ENGINE_PACKAGES, *WITH_ENGINES)
_SYSTEM = "(System Packages)"  # zypper's name for what is installed and in no repository


def refresh_lists(host: Host, freshness: Freshness, clock: Clock) -> dict[str, Any]:
    """Bring the metadata up to date if it is missing or old; returns its age, and the error if there was one."""
    age_s = lists_age_s(host, clock)
    error = None
    if are_due(host, age_s, freshness, clock, [_SOURCES]):
        done = host.run([*_ZYPPER, "refresh"], freshness.timeout_s)
        error = None if done.return_code == 0 else done.complaints
        if error is None and host.path(_SOLV).is_dir():
            host.path(_SOLV).touch()  # metadata that has not changed is not written again
        age_s = lists_age_s(host, clock)
    return {"lists_age_s": age_s, "lists_error": error}


def lists_age_s(host: Host, clock: Clock) -> int | None:
    """Seconds since zypper last fetched its metadata, None when it has none."""
    if not host.names(_RAW):
        return None
    stamps = [host.path(path) for path in (_SOLV, *(f"{_RAW}/{name}/repodata" for name in host.names(_RAW)))]
    times = [stamp.stat().st_mtime for stamp in stamps if stamp.exists()]
    return max(0, int(clock.now() - max(times))) if times else None


def wait_for_lock(host: Host, timeout_s: float, clock: Clock) -> dict[str, Any] | None:
    """Return the lock's holder, None as soon as there is none."""
    return locks.wait_for(read_lock_holder, host, timeout_s, clock)


def read_lock_holder(host: Host) -> dict[str, Any] | None:
    """Return the facts ``locked_by``."""
    return database.read_lock_holder(host, _PID_FILES)


def read_installed(host: Host) -> tuple[dict[str, Any], bool]:
    """Return the facts ``packages``, and whether a transaction was interrupted; raises HostError."""
    return database.read_database(host, zypper_holds(host))


def read_state(host: Host) -> dict[str, Any]:
    """Return what else ``package_manager`` says: packages of engines that are locked; it has no module streams."""
    return {"module_streams": {}, "left_out": zypper_leaves_out(host, ENGINE_PACKAGES)}


def read_available(host: Host) -> dict[str, Any]:
    """Return the facts ``available``: all versions of the packages that the planner decides about, newest first.

    zypper says what it could install; sources and requirements are in the metadata that it has fetched, as asking
    zypper for them would take a run for each package. Where it has fetched nothing yet it is not asked: it would fetch,
    whatever it is told of refreshing.
    """
    if not has_metadata(host):
        return {}
    offered = _parse(
        host.run([*_ZYPPER, "--no-refresh", "--xmlout", "search", "-s", "-t", "package", *_WORDS], _QUERY_TIMEOUT_S)
    )
    metadata = read_metadata(host, {name for name, _, _ in offered})
    providers = capabilities.providers((entry.rpm.name, entry.provides) for entry in metadata.values())
    available: dict[str, dict[str, Any]] = {}
    for name, edition, is_fetchable in offered:
        entry = metadata.get((name, edition))
        rpm = entry.rpm if entry else Rpm(name, "", edition, "", "", "")
        if not rpm.is_of_interest:
            continue
        known = available.setdefault(name, {}).setdefault(edition, {"fetchable": False})
        known.update(
            version=edition,
            source=rpm.source,
            depends=capabilities.resolve(name, entry.requires if entry else (), providers),
            module_stream=None,
            fetchable=known["fetchable"] or is_fetchable,
        )
    return {name: list(versions.values()) for name, versions in sorted(available.items())}


def _parse(done: Finished) -> list[tuple[str, str, bool]]:
    """Return name, edition and whether a repository has it, of each package for this machine's architecture."""
    try:
        tree = ET.fromstring(done.stdout[:_MAX_ANSWER])  # noqa: S314 - zypper's own answer; expat refuses entity bombs
    except ET.ParseError:
        return []
    return [
        (each.get("name", ""), each.get("edition", ""), each.get("repository") != _SYSTEM)
        for each in tree.iter("solvable")
        if each.get("kind") == "package" and not database.is_compatibility(each.get("arch", ""))
    ]
