"""Takes the packages of an engine away again, with their settings and what it left behind.

apt is told by its own verbs: it purges what was removed already, and keeps nothing of it. dnf removes by the same
transactions that exchange a driver.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.engines.staged import WORK
from ansible_collections.grapnel.node.plugins.module_utils.engines.table import ENGINES
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import unit_property
from ansible_collections.grapnel.node.plugins.module_utils.packages import family
from ansible_collections.grapnel.node.plugins.module_utils.packages.choose import find_manager
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError, Transaction
from ansible_collections.grapnel.node.plugins.module_utils.removal.own import remove_made, remove_path
from ansible_collections.grapnel.node.plugins.module_utils.removal.settings import (
    find_unused,
    keep_settings,
    put_back_settings,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
    from ansible_collections.grapnel.node.plugins.module_utils.removal.originals import Packages

_ASK_TIMEOUT_S = 60.0
_CHANGE_TIMEOUT_S = 900.0
_GOES = re.compile(r"^(?:Remv|Purg) (\S+?)(?::\S+)? ", re.MULTILINE)
_SHIMS = tuple({each.shim for each in ENGINES.values() if each.shim})  # what containers run below
_WAIT = ("-o", "DPkg::Lock::Timeout=120")
_SILENT = ("env", "DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_SUSPEND=1")
_MEMBERS = 3  # column of group(5)


class RemovalError(Exception):
    """Something cannot be removed; the message says why and what helps."""


@dataclass(frozen=True)
class PackagePlan:
    """The packages of an engine that go with the ``data`` that it made and its ``groups``, or why it stays."""

    engine: str
    names: tuple[str, ...]
    data: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    stays: str = ""
    problem: str = ""


def plan_packages(host: Host, engine: str, recorded: Packages) -> PackagePlan:
    """Decide what becomes of the packages that came with an engine."""
    names = _installed(host, recorded.names)
    data = tuple(path for path in recorded.data if host.path(path).exists())
    groups = tuple(name for name in recorded.groups if is_unused_group(host, name))
    if not names:
        return PackagePlan(engine, (), data, groups)
    if unit_property(host, "kubelet.service", "LoadState") == "loaded":
        return PackagePlan(engine, names, stays="the node has a kubelet, which needs it")
    try:
        others = sorted(_going(host, names) - set(names))
    except PackageError as error:
        return PackagePlan(engine, names, stays=str(error))
    if others:
        return PackagePlan(engine, names, stays=f"{', '.join(others[:5])} would go with it")
    if _has_containers(host):
        return PackagePlan(engine, names, problem=f"containers run on the node, whose {engine} grapnel installed")
    return PackagePlan(engine, names, data, groups)


def purge(host: Host, plan: PackagePlan) -> None:
    """Remove the packages with their configuration, then the data; raises `RemovalError`, OSError."""
    if plan.names:
        _purge(host, plan)
    for path in plan.data:
        remove_made(host, path)
    for name in plan.groups:
        host.run(["groupdel", name], _ASK_TIMEOUT_S)


def absent_data(host: Host, engine: str) -> tuple[str, ...]:
    """Return the folders of an engine's data that are not there before it is installed."""
    return tuple(path for path in (ENGINES[engine].data if engine in ENGINES else ()) if not host.path(path).exists())


def absent_groups(host: Host, engine: str) -> tuple[str, ...]:
    """Return the groups of users that an engine makes, and that are not there before it is installed."""
    return tuple(name for name in (ENGINES[engine].groups if engine in ENGINES else ()) if not _group(host, name))


def is_unused_group(host: Host, name: str) -> bool:
    """Tell whether a group is there and has no members: nobody was put into it."""
    row = _group(host, name)
    return len(row) > _MEMBERS and not row[_MEMBERS]


def _group(host: Host, name: str) -> list[str]:
    rows = (line.split(":") for line in (host.read_text("/etc/group") or "").splitlines())
    return next((row for row in rows if row[0] == name), [])


def _purge(host: Host, plan: PackagePlan) -> None:
    """Purge the packages, but not the settings that somebody wrote himself, before they came or since."""
    keep_settings(host, plan.names)
    if _has_apt(host):
        done = host.run([*_SILENT, "apt-get", "--yes", "--quiet", *_WAIT, "purge", *plan.names], _CHANGE_TIMEOUT_S)
        if done.return_code:
            raise RemovalError(f"the packages of {plan.engine} cannot be removed: {done.complaints}")
    else:
        unused = find_unused(host, plan.names)
        try:
            find_manager(host).apply(host, Transaction((), plan.names, WORK, purge=True), Clock())
        except PackageError as error:
            raise RemovalError(f"the packages of {plan.engine} cannot be removed: {error}") from error
        for path in unused:
            remove_path(host, path)
    put_back_settings(host)


def _installed(host: Host, names: Sequence[str]) -> tuple[str, ...]:
    if not _has_apt(host):
        try:
            there = find_manager(host).installed(host, names)
        except PackageError as error:
            raise RemovalError(f"nobody can tell which of {', '.join(names)} are there: {error}") from error
        return tuple(name for name in names if name in there)
    return tuple(name for name in names if _has_state(host, name))


def _has_state(host: Host, name: str) -> bool:
    done = host.run(["dpkg-query", "--show", "--showformat", "${db:Status-Status}", name], _ASK_TIMEOUT_S)
    return done.return_code == 0 and done.stdout.strip() not in ("", "not-installed")


def _going(host: Host, names: tuple[str, ...]) -> set[str]:
    """Return what would go with packages; raises `PackageError`."""
    if not _has_apt(host):
        return set(find_manager(host).rehearse(host, Transaction((), names, WORK, purge=True)).remove)
    done = host.run(["apt-get", "--simulate", "purge", *names], _ASK_TIMEOUT_S)
    if done.return_code:
        raise PackageError(f"apt would not remove it ({done.complaint})")
    return set(_GOES.findall(done.stdout))


def _has_apt(host: Host) -> bool:
    return family.find_manager(host) == family.APT


def _has_containers(host: Host) -> bool:
    comms = (host.read_text(f"/proc/{pid}/comm") or "" for pid in host.names("/proc") if pid.isdigit())
    return any(comm.startswith(_SHIMS) for comm in comms)
