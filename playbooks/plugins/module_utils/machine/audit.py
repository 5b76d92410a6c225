"""Reads what the kernel's security modules have refused: of auditd's log, without it of the kernel's own."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_LOG = "/var/log/audit/audit.log"
_BYTES = 1 << 20
_ABOUT = re.compile(r"grapnel|nvidia")
_SHOWN = 8
_TIMEOUT_S = 20.0


def read_denials(host: Host, describe: Callable[[str], str | None]) -> list[str]:
    """Return the latest denials that are about GPUs or grapnel, each once, in the words of ``describe`` for a line.

    It returns None for a line that is no denial of its module.
    """
    found: dict[str, None] = {}
    for line in reversed(_lines(host)):
        told = describe(line) if _ABOUT.search(line) else None
        if told is not None:
            found[printable(told, 400)] = None
    return list(found)[:_SHOWN]


def _lines(host: Host) -> list[str]:
    try:
        with host.open(_LOG) as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _BYTES))
            return stream.read(_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:  # without auditd they are in the kernel's log
        words = ["--dmesg", "--boot", "--lines", "5000", "--output", "cat", "--no-pager", "--quiet"]
        return host.run(["journalctl", *words], _TIMEOUT_S).stdout.splitlines()
