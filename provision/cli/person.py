"""Names the person who runs a command, for others who read it: on a lease, in a pause."""

from __future__ import annotations

import os
import socket


def person() -> str:
    """Return who it is and where, such as ``ada@laptop``."""
    return f"{os.environ.get('USER') or os.getuid()}@{socket.gethostname()}"
