"""Defines what a package manager's log tells of a change, and reads the end of such a log."""

from __future__ import annotations

import gzip
import io
import time
import zlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

LIMIT_BYTES = 1024 * 1024  # of each log: months of a node whose packages are upgraded every week
_COMMAND_LIMIT = 300  # characters
_USER_LIMIT = 64
_FORMAT = "%Y-%m-%d %H:%M:%S"
_GZIP = ".gz"


@dataclass(frozen=True)
class PackageChange:
    """The last change of a package: ``action`` is ``install``, ``upgrade`` or ``remove``, ``version`` the one after it.

    ``command`` and ``user`` are empty where nobody wrote them down. Time is in seconds since 1970.
    """

    action: str
    time: int
    version: str = ""
    command: str = ""
    user: str = ""

    def described(self) -> dict[str, Any]:
        """Return it as the facts have it."""
        return {
            **asdict(self),
            "command": printable(self.command, _COMMAND_LIMIT),
            "user": printable(self.user, _USER_LIMIT),
        }


def read_end(host: Host, path: str) -> str:
    """Return the last whole lines of a log; empty when there is none. Of a compressed one, it is the first lines."""
    try:
        with host.open(path) as stream:
            if path.endswith(_GZIP):
                return _text(gzip.GzipFile(fileobj=stream).read(LIMIT_BYTES))
            size = stream.seek(0, io.SEEK_END)
            stream.seek(max(0, size - LIMIT_BYTES))
            data = stream.read(LIMIT_BYTES)
    except (OSError, EOFError, zlib.error):
        return ""
    return _text(data.partition(b"\n")[2] if size > LIMIT_BYTES else data)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def seconds(local: str) -> int | None:
    """Return a time that a log gives in the node's time zone, ``2026-05-01 06:12:03``, in seconds since 1970."""
    try:
        return max(0, int(time.mktime(time.strptime(" ".join(local.split()), _FORMAT))))
    except (ValueError, OverflowError):
        return None
