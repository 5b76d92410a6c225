"""Installs the packages of an engine, tells which come with it, and takes them away again."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.engines.table import ENGINES
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import unit_property
from ansible_collections.grapnel.node.plugins.module_utils.removal.own import remove_made
from ansible_collections.grapnel.node.plugins.module_utils.removal.settings import keep_settings, put_back_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
    from ansible_collections.grapnel.node.plugins.module_utils.removal.originals import Packages

_ASK_TIMEOUT_S = 60.0
_CHANGE_TIMEOUT_S = 900.0
# One that is upgraded has its present version in brackets: it was there before.
_NEW = re.compile(r"^Inst (\S+?)(?::\S+)? \(", re.MULTILINE)
_GOES = re.compile(r"^(?:Remv|Purg) (\S+?)(?::\S+)? ", re.MULTILINE)
_SHIMS = tuple({each.shim for each in ENGINES.values() if each.shim})  # what containers run below
_WAIT = ("-o", "DPkg::Lock::Timeout=120")
_SILENT = ("env", "DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_SUSPEND=1")
# A file that somebody has changed stays as it is, and the package's is written beside it.
_KEEP_FILES = ("-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold")
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


def packages_to_come(host: Host, names: Sequence[str]) -> list[str]:
    """Return the packages that are not on the machine and come when these are installed; raises `RemovalError`."""
    argv = ["apt-get", "--simulate", "--no-install-recommends", "install", *names]
    done = host.run(argv, _ASK_TIMEOUT_S)
    if done.return_code:
        raise RemovalError(f"apt cannot install {', '.join(names)}: {done.complaints}")
    return sorted(set(_NEW.findall(done.stdout)))


def not_installed(host: Host, names: Sequence[str]) -> list[str]:
    """Return those of the packages that are not installed, or not to the end."""
    shown = host.run(
        ["dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\\n", *names], _ASK_TIMEOUT_S
    )
    installed = {line.split()[0] for line in shown.stdout.splitlines() if line.endswith(" installed")}
    return [name for name in names if name not in installed]


def install(host: Host, names: Sequence[str], lock_timeout_s: int) -> None:
    """Install packages without what they recommend; raises `RemovalError`."""
    wait = ("-o", f"DPkg::Lock::Timeout={lock_timeout_s}")
    options = ("--yes", "--quiet", "--no-install-recommends", *wait, *_KEEP_FILES)
    done = host.run([*_SILENT, "apt-get", *options, "install", *names], _CHANGE_TIMEOUT_S)
    if done.return_code:
        raise RemovalError(f"apt cannot install {', '.join(names)}: {done.complaints}")


def plan_packages(host: Host, engine: str, recorded: Packages) -> PackagePlan:
    """Decide what becomes of the packages that came with an engine."""
    names = tuple(name for name in recorded.names if _is_installed(host, name))
    data = tuple(path for path in recorded.data if host.path(path).exists())
    groups = tuple(name for name in recorded.groups if is_unused_group(host, name))
    if not names:
        return PackagePlan(engine, (), data, groups)
    if unit_property(host, "kubelet.service", "LoadState") == "loaded":
        return PackagePlan(engine, names, stays="the node has a kubelet, which needs it")
    done = host.run(["apt-get", "--simulate", "purge", *names], _ASK_TIMEOUT_S)
    if done.return_code:
        return PackagePlan(engine, names, stays=f"apt would not remove it ({done.complaint})")
    others = sorted(set(_GOES.findall(done.stdout)) - set(names))
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
    done = host.run([*_SILENT, "apt-get", "--yes", "--quiet", *_WAIT, "purge", *plan.names], _CHANGE_TIMEOUT_S)
    if done.return_code:
        raise RemovalError(f"the packages of {plan.engine} cannot be removed: {done.complaints}")
    put_back_settings(host)


def _is_installed(host: Host, name: str) -> bool:
    done = host.run(["dpkg-query", "--show", "--showformat", "${db:Status-Status}", name], _ASK_TIMEOUT_S)
    return done.return_code == 0 and done.stdout.strip() not in ("", "not-installed")


def _has_containers(host: Host) -> bool:
    comms = (host.read_text(f"/proc/{pid}/comm") or "" for pid in host.names("/proc") if pid.isdigit())
    return any(comm.startswith(_SHIMS) for comm in comms)
