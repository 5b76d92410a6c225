"""Reads what keeps RPM packages from being changed: version locks of dnf, exclusions, locks of zypper."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.database import Rpm

VERSIONLOCK = "/etc/dnf/plugins/versionlock.list"  # of dnf 4, dnf-versionlock(8)
# Between these stand the entries that grapnel has written.
VERSIONLOCK_BEGIN = "# grapnel: versions of the driver; they change with it"
VERSIONLOCK_END = "# grapnel: end"
_VERSIONLOCK_TOML = "/etc/dnf/versionlock.toml"  # of dnf 5
_DNF_CONF = "/etc/dnf/dnf.conf"
_REPOSITORIES = "/etc/yum.repos.d"
_ZYPPER_LOCKS = "/etc/zypp/locks"
_ENTRY = re.compile(r"(\S+)-\d+:[^-\s]+-[^-\s]+")  # of a version lock list: name, epoch, version, release
_TOML_NAME = re.compile(r"""^\s*name\s*=\s*["']([^"'\n]+)["']""", re.MULTILINE)
_EXCLUDES = re.compile(r"^\s*(?:exclude|excludepkgs)\s*=([^\n]*(?:\n[ \t]+[^\n]*)*)", re.MULTILINE)
_SEPARATOR = re.compile(r"[\s,]+")


def dnf_holds(host: Host) -> Callable[[Rpm], bool]:
    """Return what tells whether dnf leaves a package as it is.

    It does not while an entry of grapnel's own is of another version: dnf takes every version that any entry names.
    """
    text = host.read_text(VERSIONLOCK) or ""
    listed = [line.strip() for line in text.splitlines()]
    own = own_locks(text)
    patterns = [
        *(line for line in listed if line and not line.startswith(("#", "!"))),
        *_TOML_NAME.findall(host.read_text(_VERSIONLOCK_TOML) or ""),
        *_excluded(host.read_text(_DNF_CONF)),
    ]

    def is_held(rpm: Rpm) -> bool:
        if any(_is_of_another_version(line, rpm) for line in own):
            return False
        return any(fnmatchcase(spelling, pattern) for spelling in rpm.spellings for pattern in patterns)

    return is_held


def dnf_leaves_out(host: Host, names: Iterable[str]) -> list[str]:
    """Return the names that an exclusion of dnf's, or of one of its repositories, takes out of what it offers."""
    repositories = (f"{_REPOSITORIES}/{name}" for name in host.names(_REPOSITORIES) if name.endswith(".repo"))
    patterns = [word for path in (_DNF_CONF, *repositories) for word in _excluded(host.read_text(path))]
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


def _excluded(text: str | None) -> list[str]:
    return [word for found in _EXCLUDES.findall(text or "") for word in _SEPARATOR.split(found) if word]


def own_locks(text: str) -> list[str]:
    """Return the entries of a version lock list that grapnel has written."""
    rest = text.partition(f"{VERSIONLOCK_BEGIN}\n")[2]
    return [line for line in rest.partition(VERSIONLOCK_END)[0].splitlines() if line]


def locked_name(line: str) -> str | None:
    """Return the package that an entry of a version lock list keeps at one version, None for any other line."""
    match = _ENTRY.fullmatch(line.strip())
    return match[1] if match else None


def _is_of_another_version(line: str, rpm: Rpm) -> bool:
    return locked_name(line) == rpm.name and not any(fnmatchcase(spelling, line) for spelling in rpm.spellings)


def zypper_holds(host: Host) -> Callable[[Rpm], bool]:
    """Return what tells whether zypper leaves a package as it is (zypper(8), "Package Locks Management").

    A lock may be of one version or of one repository; it then counts for the whole package, which it may well block.
    """
    locks = _zypper_locks(host)
    return lambda rpm: any(_matches(rpm.name, lock) for lock in locks)


def zypper_leaves_out(host: Host, names: Iterable[str]) -> list[str]:
    """Return the names that a lock of zypper's is of, whether they are installed or not."""
    locks = _zypper_locks(host)
    return [name for name in names if any(_matches(name, lock) for lock in locks)]


def zypper_lock_names(host: Host) -> frozenset[str]:
    """Return what zypper's locks say that they are of: names, and patterns of names."""
    blocks = (dict(_fields(block)) for block in (host.read_text(_ZYPPER_LOCKS) or "").split("\n\n"))
    return frozenset(block["solvable_name"] for block in blocks if "solvable_name" in block)


def _zypper_locks(host: Host) -> list[dict[str, str]]:
    blocks = [dict(_fields(block)) for block in (host.read_text(_ZYPPER_LOCKS) or "").split("\n\n") if block.strip()]
    return [block for block in blocks if block.get("type", "package") in ("package", "") and "solvable_name" in block]


def _fields(block: str) -> list[tuple[str, str]]:
    lines = (line.partition(":") for line in block.splitlines() if ":" in line and not line.startswith("#"))
    return [(name.strip(), value.strip()) for name, _, value in lines]


def _matches(name: str, lock: dict[str, str]) -> bool:
    pattern, kind = lock["solvable_name"], lock.get("match_type", "glob")
    if kind == "regex":
        try:
            return re.search(pattern, name) is not None
        except re.error:
            return False
    return pattern in name if kind == "substring" else fnmatchcase(name, pattern)
