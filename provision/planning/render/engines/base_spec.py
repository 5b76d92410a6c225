"""Renders the base OCI specification of our runtime handler: what containerd itself would begin with, plus the hook.

containerd's CRI plugin starts a container from this file (``base_runtime_spec``) instead of its built-in defaults and
then sets everything that the pod says. Three differences to ``ctr oci spec`` (containerd 1.6 to 2.x) besides the hook,
each for a reason:

- no ``process.rlimits``: with its own defaults the CRI plugin clears their limit of 1024 open files, with a base
  specification it leaves limits alone, as if they were intended (``buildLinuxSpec``);
- no ``linux.cgroupsPath``: it is set for each container;
- ``ociVersion`` is one that every runtime of the last years accepts.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

HOOK_PATH = "/usr/lib/grapnel/hook/grapnel-hook"
# The hook gives up by itself before that (hook.json, timeoutS) and says why; this limit is for a hook that cannot.
_MARGIN_S = 15
# A hook without an environment of its own gets the container's under some runtimes (CVE-2025-23266).
_HOOK_ENVIRONMENT = ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"]

_CAPABILITIES = (
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FSETID",
    "CAP_FOWNER",
    "CAP_MKNOD",
    "CAP_NET_RAW",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETFCAP",
    "CAP_SETPCAP",
    "CAP_NET_BIND_SERVICE",
    "CAP_SYS_CHROOT",
    "CAP_KILL",
    "CAP_AUDIT_WRITE",
)
_MOUNTS = (
    ("/proc", "proc", "proc", "nosuid noexec nodev"),
    ("/dev", "tmpfs", "tmpfs", "nosuid strictatime mode=755 size=65536k"),
    ("/dev/pts", "devpts", "devpts", "nosuid noexec newinstance ptmxmode=0666 mode=0620 gid=5"),
    ("/dev/shm", "tmpfs", "shm", "nosuid noexec nodev mode=1777 size=65536k"),  # noqa: S108 - inside the container
    ("/dev/mqueue", "mqueue", "mqueue", "nosuid noexec nodev"),
    ("/sys", "sysfs", "sysfs", "nosuid noexec nodev ro"),
    ("/run", "tmpfs", "tmpfs", "nosuid strictatime mode=755 size=65536k"),
)
_NAMESPACES = ("pid", "ipc", "uts", "mount", "network")
_MASKED_PATHS = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",  # from containerd 2.4 on
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
    "/proc/scsi",
)
_READONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


@lru_cache(maxsize=4)
def render_base_spec(*, hook_timeout_s: int) -> str:
    """Return the specification as JSON; ``hook_timeout_s`` is after how long the hook gives up by itself."""
    return json.dumps(base_spec(hook_timeout_s=hook_timeout_s), indent=2) + "\n"


def base_spec(*, hook_timeout_s: int) -> dict[str, Any]:
    """Return the specification as a tree."""
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "cwd": "/",
            "capabilities": {kind: list(_CAPABILITIES) for kind in ("bounding", "effective", "permitted")},
            "noNewPrivileges": True,
        },
        "root": {"path": "rootfs"},
        "mounts": [
            {"destination": destination, "type": kind, "source": source, "options": options.split()}
            for destination, kind, source, options in _MOUNTS
        ],
        "hooks": {"prestart": [hook_entry(hook_timeout_s=hook_timeout_s)]},
        "linux": {
            "resources": {"devices": [{"allow": False, "access": "rwm"}]},
            "namespaces": [{"type": each} for each in _NAMESPACES],
            "maskedPaths": list(_MASKED_PATHS),
            "readonlyPaths": list(_READONLY_PATHS),
        },
    }


def hook_entry(*, hook_timeout_s: int) -> dict[str, Any]:
    """Return the hook as an OCI specification and a hook file both name it."""
    return {
        "path": HOOK_PATH,
        "args": ["grapnel-hook", "prestart"],
        "env": list(_HOOK_ENVIRONMENT),
        "timeout": hook_timeout_s + _MARGIN_S,
    }
