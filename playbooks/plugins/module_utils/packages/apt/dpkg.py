"""Reads dpkg's database: installed packages, holds, an interrupted run, who holds the lock.

The database is read as a file: one read answers everything, and it works while dpkg itself is stuck.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.machine.host import HostError
from ansible_collections.grapnel.node.plugins.module_utils.packages import interest, locks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Host

_STATUS = "/var/lib/dpkg/status"
_MAX_STATUS_BYTES = 64 * 1024 * 1024  # ten times that of a machine with everything on it
_UPDATES = "/var/lib/dpkg/updates"
_INFO = "/var/lib/dpkg/info"
_MAY_OWN = re.compile("nvidia|cuda")
_LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock")
_SETTLED = frozenset({"installed", "config-files", "not-installed"})
_FIELD = re.compile(r"^(Package|Status|Version|Source|Depends|Pre-Depends): *(.*)$", re.MULTILINE)

Paragraph = dict[str, str]


def parse_paragraphs(text: str) -> Iterator[Paragraph]:
    """Split deb822 text as dpkg and apt write it; only the fields that facts are made of."""
    for block in text.split("\n\n"):
        fields = dict(_FIELD.findall(block))
        if "Package" in fields:
            yield fields


def source_of(paragraph: Paragraph) -> str:
    """Name of the source package; it is left out where it equals the binary's, and may carry a version."""
    return paragraph.get("Source", paragraph["Package"]).split(" ", 1)[0]


def is_of_interest(paragraph: Paragraph) -> bool:
    """Tell whether the planner decides about this package."""
    return interest.is_of_interest(paragraph["Package"], source_of(paragraph))


def read_installed(host: Host) -> tuple[dict[str, Any], bool]:
    """Return the facts ``packages``, and whether a run of dpkg was interrupted (of any package).

    A package of which only configuration files are left counts as absent. Raises HostError where the database cannot be
    read: it would look as if nothing was installed.
    """
    packages: dict[str, Any] = {}
    interrupted = any(name.isdecimal() for name in host.names(_UPDATES))
    for paragraph in parse_paragraphs(_read_status(host)):
        want, flag, state = (paragraph.get("Status", "") + "   ").split(" ")[:3]
        interrupted = interrupted or state not in _SETTLED or flag == "reinstreq"
        if state in ("config-files", "not-installed") or not is_of_interest(paragraph):
            continue
        packages[paragraph["Package"]] = {
            "version": paragraph.get("Version", ""),
            "source": source_of(paragraph),
            "hold": want == "hold",
            "status": state,
        }
    return dict(sorted(packages.items())), interrupted


def _read_status(host: Host) -> str:
    text = host.read_text(_STATUS, _MAX_STATUS_BYTES)
    if text is None and os.path.lexists(host.path(_STATUS)):
        raise HostError(f"{_STATUS} cannot be read as a file of at most {_MAX_STATUS_BYTES >> 20} MiB")
    return text or ""


def read_state(host: Host) -> dict[str, Any]:
    """Return what else ``package_manager`` says: nothing, apt has no module streams."""
    del host
    return {"module_streams": {}}


def is_owned(host: Host, path: str) -> bool:
    """Tell whether a package of the driver has a file; ``/lib`` is ``/usr/lib`` since Debian 12."""
    paths = {path, path.removeprefix("/usr")}
    lists = (name for name in host.names(_INFO) if name.endswith(".list") and _MAY_OWN.search(name))
    return any(not paths.isdisjoint((host.read_text(f"{_INFO}/{name}") or "").splitlines()) for name in lists)


def read_lock_holder(host: Host) -> dict[str, Any] | None:
    """Return the facts ``locked_by``: the process that uses dpkg's database now."""
    for lock in _LOCKS:
        pid = locks.locking_pid(host, lock)
        if pid is not None:
            return locks.describe(host, pid)
    return None


def wait_for_lock(host: Host, timeout_s: float, clock: Clock) -> dict[str, Any] | None:
    """Return the lock's holder, None as soon as there is none."""
    return locks.wait_for(read_lock_holder, host, timeout_s, clock)
