"""Which machine this is and what it runs."""

from __future__ import annotations

import os
import platform
import shlex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.host import Host


def read_identity(host: Host) -> dict[str, Any]:
    """Facts ``node``; what systemd has not written yet is an empty string."""
    kernel = os.uname()
    version = platform.python_version_tuple()
    return {
        "hostname": host.read_text("/etc/hostname") or kernel.nodename,
        "machine_id": host.read_text("/etc/machine-id") or "",
        "boot_id": host.read_text("/proc/sys/kernel/random/boot_id") or "",
        "kernel": kernel.release,
        "architecture": kernel.machine,
        "python": f"{version[0]}.{version[1]}",
        "os": parse_os_release(host.read_text("/etc/os-release") or host.read_text("/usr/lib/os-release") or ""),
    }


def parse_os_release(text: str) -> dict[str, str]:
    """Pick the distribution out of os-release(5)."""
    fields = dict(part.split("=", 1) for part in shlex.split(text, comments=True) if "=" in part)
    return {
        "id": fields.get("ID", "linux"),  # the default of os-release(5)
        "version_id": fields.get("VERSION_ID", ""),
        "codename": fields.get("VERSION_CODENAME", ""),
    }
