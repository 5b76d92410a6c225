"""Reads what dpkg's database says about packages, as a file: it can be read while dpkg itself is stuck.

What a planner has to know of it is gathered with the facts; this is what carrying out a transaction needs.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable
from ansible_collections.grapnel.node.plugins.module_utils.packages.locks import locking_pid
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import InstalledPackage, PackageError

if TYPE_CHECKING:
    from collections.abc import Collection

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Host

_STATUS = "/var/lib/dpkg/status"
_MAX_STATUS_BYTES = 64 * 1024 * 1024
_UPDATES = "/var/lib/dpkg/updates"
_INFO = "/var/lib/dpkg/info"
_QUERY_TIMEOUT_S = 60.0
_ITSELF = "dpkg"  # a package that every machine with this database has
_REMEDY = "restore the database first: dpkg keeps copies in /var/backups"
_LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock")
_LOCK_POLL_S = 0.5
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_FIELD = re.compile(r"^(Package|Status|Version|Architecture): *(.*)$", re.MULTILINE)
_GONE = ("config-files", "not-installed")
_SETTLED = ("installed", *_GONE)


def read_packages(host: Host, names: Collection[str]) -> dict[str, InstalledPackage]:
    """Return those of the packages that are installed, for the machine's own architecture; raises `PackageError`."""
    found = {}
    foreign = {arch for machine, arch in _ARCHITECTURES.items() if machine != os.uname().machine}
    listed = _paragraphs(host, {*names, _ITSELF})
    _require_all_listed(host, {*names, _ITSELF} - {fields["Package"] for fields in listed})
    for fields in listed:
        if fields["Package"] not in names:
            continue
        want, flag, state = (fields.get("Status", "") + "   ").split(" ")[:3]
        if state in _GONE or fields.get("Architecture") in {*foreign, "i386", "armhf"}:
            continue
        is_whole = state == "installed" and flag != "reinstreq"
        found[fields["Package"]] = InstalledPackage(fields.get("Version", ""), want == "hold", is_whole)
    return found


def _paragraphs(host: Host, names: Collection[str]) -> list[dict[str, str]]:
    wanted = {f"Package: {name}\n" for name in names}
    blocks = _read_status(host).split("\n\n")
    return [dict(_FIELD.findall(block)) for block in blocks if block.lstrip("\n").partition("\n")[0] + "\n" in wanted]


def _read_status(host: Host) -> str:
    text = host.read_text(_STATUS, _MAX_STATUS_BYTES)
    if text is None:
        raise PackageError(
            f"{_STATUS} is gone or damaged: it cannot be read as a file of at most {_MAX_STATUS_BYTES >> 20} MiB; "
            f"{_REMEDY}",
            is_unchanged=True,
        )
    return text


def _require_all_listed(host: Host, missing: Collection[str]) -> None:
    """Raise `PackageError` for a package that the database has lost: what it put on the machine is known still.

    What looks as if it was not installed would be installed beside what is there, and the way back would remove it.
    After a kill, dpkg's last words are not in the file yet.
    """
    if _has_updates(host):
        return
    own = _ARCHITECTURES.get(os.uname().machine, "")
    lists = {f"{each}.list": name for name in missing for each in (name, f"{name}:{own}")}
    lost = sorted({lists[each] for each in host.names(_INFO) if each in lists})
    if lost:
        raise PackageError(
            f"{_STATUS} is damaged: it has no entry for {', '.join(lost)}, whose files {_INFO} lists; {_REMEDY}",
            is_unchanged=True,
        )


def require_readable(host: Host) -> None:
    """Raise `PackageError` where dpkg cannot read its own database, which apt may not mind before it has begun."""
    shown = host.run(["dpkg-query", "--show", _ITSELF], _QUERY_TIMEOUT_S)
    if shown.return_code:
        raise PackageError(f"{_STATUS} is damaged: {shown.complaints}; {_REMEDY}", is_unchanged=True)


def _has_updates(host: Host) -> bool:
    return any(name.isdecimal() for name in host.names(_UPDATES))


def is_interrupted(host: Host) -> bool:
    """Tell whether dpkg was killed, or left a package of whatever name unpacked or half configured."""
    if _has_updates(host):
        return True
    states = re.findall(r"^Status: \S+ (\S+) (\S+)$", _read_status(host), re.MULTILINE)
    return any(state not in _SETTLED or flag == "reinstreq" for flag, state in states)


def half_installed(host: Host) -> set[str]:
    """Return the names of packages that dpkg was killed at while it put their files in place or took them away."""
    blocks = (dict(_FIELD.findall(block)) for block in _read_status(host).split("\n\n"))
    states = ((fields.get("Package", ""), (fields.get("Status", "") + "   ").split(" ")) for fields in blocks)
    return {name for name, (_, flag, state, *_) in states if state == "half-installed" or flag == "reinstreq"}


def wait_for_lock(host: Host, timeout_s: float, clock: Clock) -> None:
    """Wait until nobody uses the database; raises `PackageError` that names who does when time is up."""
    deadline = clock.monotonic() + timeout_s
    while (holder := _lock_holder(host)) is not None:
        if clock.monotonic() >= deadline:
            raise PackageError(
                f"dpkg is locked by {holder}, and still is after {timeout_s:g} s: wait for it to end, or stop it",
                is_unchanged=True,
            )
        clock.sleep(_LOCK_POLL_S)


def _lock_holder(host: Host) -> str | None:
    for lock in _LOCKS:
        pid = locking_pid(host, lock)
        if pid is not None:
            return f"{printable(host.read_text(f'/proc/{pid}/comm') or 'a process')} (pid {pid})"
    return None
