"""Reads what keeps RPM packages from being changed: version locks of dnf, exclusions, locks of zypper."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.grapnel.node.plugins.module_utils.host import Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.database import Rpm

_VERSIONLOCK = "/etc/dnf/plugins/versionlock.list"  # of dnf 4, dnf-versionlock(8)
_VERSIONLOCK_TOML = "/etc/dnf/versionlock.toml"  # of dnf 5
_DNF_CONF = "/etc/dnf/dnf.conf"
_ZYPPER_LOCKS = "/etc/zypp/locks"
_TOML_NAME = re.compile(r"""^\s*name\s*=\s*["']([^"'\n]+)["']""", re.MULTILINE)
_EXCLUDES = re.compile(r"^\s*(?:exclude|excludepkgs)\s*=([^\n]*(?:\n[ \t]+[^\n]*)*)", re.MULTILINE)
_SEPARATOR = re.compile(r"[\s,]+")


def dnf_holds(host: Host) -> Callable[[Rpm], bool]:
    """Return what tells whether dnf leaves a package as it is."""
    listed = [line.strip() for line in (host.read_text(_VERSIONLOCK) or "").splitlines()]
    excluded = _EXCLUDES.findall(host.read_text(_DNF_CONF) or "")
    patterns = [
        *(line for line in listed if line and not line.startswith(("#", "!"))),
        *_TOML_NAME.findall(host.read_text(_VERSIONLOCK_TOML) or ""),
        *(word for text in excluded for word in _SEPARATOR.split(text) if word),
    ]
    return lambda rpm: any(fnmatchcase(spelling, pattern) for spelling in rpm.spellings for pattern in patterns)


def zypper_holds(host: Host) -> Callable[[Rpm], bool]:
    """Return what tells whether zypper leaves a package as it is (zypper(8), "Package Locks Management").

    A lock may be of one version or of one repository; it then counts for the whole package, which it may well block.
    """
    blocks = [dict(_fields(block)) for block in (host.read_text(_ZYPPER_LOCKS) or "").split("\n\n") if block.strip()]
    locks = [block for block in blocks if block.get("type", "package") in ("package", "") and "solvable_name" in block]
    return lambda rpm: any(_matches(rpm.name, lock) for lock in locks)


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
