"""Reads which machine this is and what it runs."""

from __future__ import annotations

import os
import platform
import re
import shlex
import stat
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_FIELDS = ("ID", "ID_LIKE", "VERSION_ID", "VERSION_CODENAME")
_MAX_VALUE = 128  # characters
SYSTEM_PYTHON = "/usr/bin/python3"
# What distributions have beside their own: grapnel's programs are started with one of these, and no other.
PYTHONS = (SYSTEM_PYTHON, *(f"{SYSTEM_PYTHON}.{minor}" for minor in range(14, 8, -1)))
_NAMED_PYTHON = re.compile(r"python(3\.[0-9]{1,3})")
_ASK_PYTHON = "import sys; print('%d.%d' % sys.version_info[:2])"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_TIMEOUT_S = 20.0
_IMAGES = ("transactional-update", "bootc")  # what exchanges a system whose root is read-only
_MAX_MOUNTS = 64 << 20  # bytes: those of containers have the names of all their layers
_OPTIONS = 3  # the field of a mount that has them, proc_mounts(5)


def read_identity(host: Host) -> dict[str, Any]:
    """Return the facts ``node``; what systemd has not written yet is an empty string."""
    kernel = os.uname()
    version, pythons = platform.python_version_tuple(), read_pythons(host)
    return {
        "hostname": _word(host, "/etc/hostname") or kernel.nodename,
        "machine_id": _word(host, "/etc/machine-id"),
        "boot_id": _word(host, "/proc/sys/kernel/random/boot_id"),
        "kernel": kernel.release,
        "architecture": kernel.machine,
        "python": pythons.get(SYSTEM_PYTHON, f"{version[0]}.{version[1]}"),
        "pythons": pythons,
        "os": {**_describe(read_os_release(host)), "image": read_image(host)},
    }


def read_pythons(host: Host) -> dict[str, str]:
    """Return "major.minor" of each interpreter that grapnel's programs can be started with, by its path."""
    found = {path: _version_of(host, path) for path in PYTHONS}
    return {path: version for path, version in found.items() if version}


def _version_of(host: Host, path: str) -> str:
    """Return an interpreter's version; empty for what is not there, or may be written by others than root."""
    try:
        program = host.path(path).resolve(strict=True)
        status, owner = program.stat(), host.path("/").stat().st_uid
    except (OSError, RuntimeError):  # a link that leads nowhere, or in a circle
        return ""
    is_program = stat.S_ISREG(status.st_mode) and os.access(program, os.X_OK)
    if not is_program or (path != SYSTEM_PYTHON and (status.st_uid != owner or status.st_mode & _OTHERS_WRITE)):
        return ""
    named = _NAMED_PYTHON.fullmatch(program.name)
    if named:
        return named[1]
    said = host.run([path, "-IS", "-c", _ASK_PYTHON], _TIMEOUT_S).stdout.strip()
    return said if re.fullmatch(r"[0-9]{1,2}\.[0-9]{1,3}", said) else ""


def read_image(host: Host) -> str:
    """Return what keeps the system as an image that packages do not change, empty where they do."""
    if host.path("/run/ostree-booted").exists():  # written by ostree, and so by bootc
        return "ostree"
    mounts = [line.split() for line in (host.read_text("/proc/self/mounts", _MAX_MOUNTS) or "").splitlines()]
    options = [fields[3].split(",") for fields in mounts if len(fields) > _OPTIONS and fields[1] == "/"]
    if not options or "ro" not in options[-1]:
        return ""
    return next((name for name in _IMAGES if host.find_command(name)), "")  # else it is a disk with errors


def _word(host: Host, path: str) -> str:
    return printable(host.read_text(path) or "")


def read_os_release(host: Host) -> dict[str, str]:
    """Return the fields of os-release(5) that say which distribution this is."""
    return _parse(host.read_text("/etc/os-release") or host.read_text("/usr/lib/os-release") or "")


def parse_os_release(text: str) -> dict[str, str]:
    """Pick the distribution out of os-release(5); what is not written as it says counts as missing."""
    return _describe(_parse(text))


def _parse(text: str) -> dict[str, str]:
    lines = (line.strip().partition("=") for line in text.split("\n"))
    return {name: _value(written) for name, is_set, written in lines if is_set and name in _FIELDS}


def _describe(fields: dict[str, str]) -> dict[str, str]:
    """Return the facts ``node.os``."""
    return {
        "id": fields.get("ID") or "linux",  # the default of os-release(5)
        "version_id": fields.get("VERSION_ID", ""),
        "codename": fields.get("VERSION_CODENAME", ""),
    }


def _value(written: str) -> str:
    try:
        words = shlex.split(written[:_MAX_VALUE], comments=True)
    except ValueError:  # quotes that nobody closes
        return ""
    return printable(words[0]) if words else ""
