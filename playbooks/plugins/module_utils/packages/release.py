"""Reads whether another release of the system is on its way, and which one its package sources are locked to."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.machine.identity import read_os_release

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_OFFLINE = "/system-update"  # systemd.offline-updates(7): dnf's and PackageKit's, carried out by the next boot
_LEAPP = re.compile(r"vmlinuz-upgrade\.\w+")  # the kernel that Leapp upgrades RHEL and its kin with
_APT = "/etc/apt"
_READ = re.compile(r"[A-Za-z0-9_.:-]+\.(list|sources)")  # names that apt takes, sources.list(5)
_LINE = re.compile(r"^[ \t]*deb(?:-src)?\s+(?:\[[^\]\n]*\]\s+)?\S+\s+(\S+)", re.MULTILINE)
_FIELD = re.compile(r"^Suites:(.*(?:\n[ \t].*)*)", re.MULTILINE | re.IGNORECASE)
_LEFT_OUT = re.compile(r"^Enabled:[ \t]*(?:no|false|without|off|disable)\b", re.MULTILINE | re.IGNORECASE)
_STANZAS = re.compile(r"\n(?:[ \t]*\n)+")
_OF_RELEASE = re.compile(r"([a-z]+)-(?:updates|security)")  # suites that only the distribution itself has
_NO_RELEASES = frozenset({"oldstable", "stable", "testing"})
_VARIABLES = ("/etc/dnf/vars/releasever", "/etc/yum/vars/releasever")
_SUBSCRIPTION = "/var/lib/rhsm/cache/releasever.json"  # of `subscription-manager release --set`
_RELEASE = re.compile(r"[0-9][0-9A-Za-z._-]{0,63}")
_TIMEOUT_S = 60.0


def read_release_upgrade(host: Host) -> str | None:
    """Return the file by which the machine is in an upgrade to another release, None if none says so."""
    if host.path(_OFFLINE).is_symlink():
        return _OFFLINE
    kernels = (f"/boot/{name}" for name in host.names("/boot") if _LEAPP.fullmatch(name))
    return next(kernels, None) or _foreign_sources(host)


def _foreign_sources(host: Host) -> str | None:
    """Return apt's sources of another release, where no source is of the release that the machine still is."""
    own = read_os_release(host).get("VERSION_CODENAME")
    suites = dict(_suites(host))
    releases = {
        name: {found[1] for each in named if (found := _OF_RELEASE.fullmatch(each))} for name, named in suites.items()
    }
    if not own or any(own in {*releases[name], *named} for name, named in suites.items()):
        return None
    return next((name for name, named in releases.items() if named - _NO_RELEASES), None)


def _suites(host: Host) -> Iterator[tuple[str, list[str]]]:
    parts = (f"{_APT}/sources.list.d/{name}" for name in host.names(f"{_APT}/sources.list.d") if _READ.fullmatch(name))
    for path in (f"{_APT}/sources.list", *parts):
        text = host.read_text(path) or ""
        if path.endswith(".sources"):
            in_use = [each for each in _STANZAS.split(text) if not _LEFT_OUT.search(each)]
            yield path, " ".join(found for each in in_use for found in _FIELD.findall(each)).split()
        else:
            yield path, _LINE.findall(text)


def read_release_lock(host: Host) -> str | None:
    """Return the release whose packages dnf offers, None where it offers the newest of its major release."""
    for path in _VARIABLES:
        text = host.read_text(path)
        if text is not None:
            return _release(text)
    try:
        said = json.loads(host.read_text(_SUBSCRIPTION) or "{}")
    except (ValueError, RecursionError):
        said = {}
    if isinstance(said, dict) and _release(said.get("releaseVer")):
        return _release(said["releaseVer"])
    if read_os_release(host).get("ID") != "amzn":
        return None
    return _release(host.ask(["rpm", "-q", "--queryformat", "%{VERSION}", "system-release"], _TIMEOUT_S).stdout)


def _release(text: object) -> str | None:
    """Return a minor release or a dated one; what is named after a major one, or ``latest``, locks nothing."""
    found = _RELEASE.fullmatch(text.strip()) if isinstance(text, str) else None
    return found[0] if found and not found[0].isdecimal() else None
