"""Reads installed packages and what holds them, from dpkg, or from RPM with the locks of dnf and zypper."""

from __future__ import annotations

import fcntl
import os
import re
import struct
from typing import TYPE_CHECKING

from plugin.base.errors import DriftError
from plugin.drift.model import Package
from plugin.system.durable import read_bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    Ask = Callable[[tuple[str, ...]], str]

_MAX_LOCKS = 1 << 20
_DPKG = ("/usr/bin/dpkg-query", "--show", "--showformat")
_DPKG_FORMAT = r"${Package}\t${Version}\t${db:Status-Want}\t${db:Status-Status}\t${Architecture}\n"
_DPKG_FIELDS = 5
_RPM = ("/usr/bin/rpm", "--query", "--queryformat")
_RPM_FORMAT = r"%{NAME}\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\t%{INSTALLTIME}\t%{ARCH}\n"
_RPM_FIELDS = 4
_GONE = ("config-files", "not-installed")
_EVERYWHERE = {"apt": "dpkg", "dnf": "bash", "zypper": "bash"}  # packages that every such machine has
_DNF_LOCKS = "etc/dnf/plugins/versionlock.list"
_ZYPPER_LOCKS = "etc/zypp/locks"
_LOCK_FILES = (
    "var/lib/dpkg/lock-frontend",
    "var/lib/dpkg/lock",
    "var/lib/rpm/.rpm.lock",
    "usr/lib/sysimage/rpm/.rpm.lock",
)
_FLOCK = "hhqqi"  # struct flock of 64-bit Linux
_LOCK = re.compile(r"(\S+)-[0-9]+:[^-\s]+-[^-\s]+")  # name, epoch, version, release
_ZYPPER_NAME = re.compile(r"^solvable_name:\s*(\S+)\s*$", re.MULTILINE)
_FOREIGN = ("i386", "i686", "armhf")


def read_packages(manager: str, names: Sequence[str], root: Path, ask: Ask) -> dict[str, Package]:
    """Return those of the packages that are installed, of the machine's own architecture; raises DriftError."""
    if not names:
        return {}
    known = _EVERYWHERE[manager]
    asked = sorted({*names, known})
    found = dict(_dpkg(asked, root, ask) if manager == "apt" else _rpm(manager, asked, root, ask))
    if known not in found:
        raise DriftError(f"the package manager does not even know {known}", "is its database damaged?")
    return {name: package for name, package in found.items() if name in names}


def _rows(text: str, fields: int) -> Iterator[list[str]]:
    rows = (line.split("\t") for line in text.splitlines())
    return (row for row in rows if len(row) == fields and row[-1] not in _FOREIGN)


def _dpkg(names: Sequence[str], root: Path, ask: Ask) -> Iterator[tuple[str, Package]]:
    for name, version, want, state, architecture in _rows(ask((*_DPKG, _DPKG_FORMAT, *names)), _DPKG_FIELDS):
        if state not in _GONE:
            yield name, Package(version, want == "hold", state, _unpacked(root, name, architecture))


def _unpacked(root: Path, name: str, architecture: str) -> int | None:
    """Return when dpkg put a package's files in place: it then writes their list."""
    for each in (f"{name}:{architecture}", name):
        try:
            return int((root / "var/lib/dpkg/info" / f"{each}.list").stat().st_mtime)
        except OSError:
            continue
    return None


def _rpm(manager: str, names: Sequence[str], root: Path, ask: Ask) -> Iterator[tuple[str, Package]]:
    locks = _dnf_locks(root) if manager == "dnf" else _zypper_locks(root)
    for name, version, changed, _ in _rows(ask((*_RPM, _RPM_FORMAT, *names)), _RPM_FIELDS):
        yield (
            name,
            Package(version.removeprefix("0:"), name in locks, changed=int(changed) if changed.isdecimal() else None),
        )


def _dnf_locks(root: Path) -> frozenset[str]:
    lines = (_LOCK.fullmatch(line.strip()) for line in _text(root / _DNF_LOCKS).splitlines())
    return frozenset(match[1] for match in lines if match)


def _zypper_locks(root: Path) -> frozenset[str]:
    return frozenset(_ZYPPER_NAME.findall(_text(root / _ZYPPER_LOCKS)))


def _text(path: Path) -> str:
    try:
        return read_bounded(path, _MAX_LOCKS).decode("utf-8", "replace")
    except OSError:
        return ""


def package_lock_holder(root: Path) -> int | None:
    """Ask the kernel who changes packages now, without taking a lock; None: no process does."""
    holders = (_lock_holder(root / each) for each in _LOCK_FILES)
    return next((holder for holder in holders if holder is not None), None)


def _lock_holder(path: Path) -> int | None:
    question = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        with path.open("rb") as file:
            answer = fcntl.fcntl(file, fcntl.F_GETLK, question)
    except OSError:
        return None
    kind, _, _, _, pid = struct.unpack(_FLOCK, answer)
    return None if kind == fcntl.F_UNLCK else int(pid)
