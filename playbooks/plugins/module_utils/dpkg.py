"""Reads dpkg's database: installed packages, holds, an interrupted run, who holds the lock.

The database is read as a file: one read answers everything, and it works while dpkg itself is stuck.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.host import HostError
from ansible_collections.grapnel.node.plugins.module_utils.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.grapnel.node.plugins.module_utils.host import Clock, Host

_STATUS = "/var/lib/dpkg/status"
_MAX_STATUS_BYTES = 64 * 1024 * 1024  # ten times that of a machine with everything on it
_UPDATES = "/var/lib/dpkg/updates"
_LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock")
_LOCK_POLL_S = 0.5
_SETTLED = frozenset({"installed", "config-files", "not-installed"})
_FIELD = re.compile(r"^(Package|Status|Version|Source|Depends|Pre-Depends|Architecture): *(.*)$", re.MULTILINE)

NVIDIA_SOURCE = re.compile(r"^(nvidia-graphics-drivers|nvidia-open-gpu-kernel-modules)")
ENGINE_PACKAGES = (
    "containerd",
    "containerd.io",
    "containernetworking-plugins",
    "cri-o",
    "docker-ce",
    "docker.io",
    "podman",
    "runc",
)

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
    return paragraph["Package"] in ENGINE_PACKAGES or bool(NVIDIA_SOURCE.match(source_of(paragraph)))


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


def read_lock_holder(host: Host) -> dict[str, Any] | None:
    """Return the facts ``locked_by``: the process that uses dpkg's database now."""
    for lock in _LOCKS:
        pid = _locking_pid(host, lock)
        if pid is not None:
            return {"pid": pid, "command": printable(host.read_text(f"/proc/{pid}/comm") or "")}
    return None


def wait_for_lock(host: Host, timeout_s: float, clock: Clock) -> dict[str, Any] | None:
    """Return the lock's holder, None as soon as there is none; somebody's transaction is usually over in a moment.

    Facts that were read in the middle of one would be out of date before anybody saw them.
    """
    deadline = clock.now() + timeout_s
    while (holder := read_lock_holder(host)) is not None and clock.now() + _LOCK_POLL_S <= deadline:
        clock.sleep(_LOCK_POLL_S)
    return holder


def _locking_pid(host: Host, path: str) -> int | None:
    """Ask the kernel who holds a POSIX lock on a file, without taking it (``struct flock`` of 64-bit Linux)."""
    flock = "hhqqi"
    question = struct.pack(flock, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        with host.open(path) as stream:
            answer = fcntl.fcntl(stream, fcntl.F_GETLK, question)
    except OSError:
        return None
    kind, _, _, _, pid = struct.unpack(flock, answer)
    return None if kind == fcntl.F_UNLCK else int(pid)
