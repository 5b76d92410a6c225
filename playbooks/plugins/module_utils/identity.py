"""Reads which machine this is and what it runs."""

from __future__ import annotations

import os
import platform
import shlex
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.printable import printable

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.host import Host

_FIELDS = ("ID", "ID_LIKE", "VERSION_ID", "VERSION_CODENAME")
_MAX_VALUE = 128  # characters


def read_identity(host: Host) -> dict[str, Any]:
    """Return the facts ``node``; what systemd has not written yet is an empty string."""
    kernel = os.uname()
    version = platform.python_version_tuple()
    return {
        "hostname": _word(host, "/etc/hostname") or kernel.nodename,
        "machine_id": _word(host, "/etc/machine-id"),
        "boot_id": _word(host, "/proc/sys/kernel/random/boot_id"),
        "kernel": kernel.release,
        "architecture": kernel.machine,
        "python": f"{version[0]}.{version[1]}",
        "os": _describe(read_os_release(host)),
    }


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
