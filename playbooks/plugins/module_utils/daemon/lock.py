"""Finds the process of the node daemon by the lock that it holds, whether systemd started it or the kubelet.

The kernel says who has a lock (``proc_locks(5)``), so nothing that a process wrote has to be believed. The file is in
``/run``, a tmpfs: its device number is the one of ``/proc/locks``, which is not so on every file system.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

LOCK = "/run/grapnel/node.lock"
_LINE = re.compile(r"[0-9]+: FLOCK +ADVISORY +WRITE ([0-9]+) ([0-9a-f]+):([0-9a-f]+):([0-9]+) ")


def daemon_pid(host: Host) -> int | None:
    """Return the process id of the running daemon, None where none runs, or one from before there was a lock."""
    try:
        seen = host.path(LOCK).stat()
    except OSError:
        return None
    locked = os.major(seen.st_dev), os.minor(seen.st_dev), seen.st_ino
    for line in (host.read_text("/proc/locks") or "").splitlines():
        match = _LINE.match(line + " ")
        if match and (int(match[2], 16), int(match[3], 16), int(match[4])) == locked:
            return int(match[1]) or None  # 0: a process that this one cannot see
    return None
