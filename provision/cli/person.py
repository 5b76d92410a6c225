"""Names the person who runs a command, for others who read it: on a lease, in a pause."""

from __future__ import annotations

import os
import pwd
import socket


def person() -> str:
    """Return who it is and where, such as ``ada@laptop``."""
    return f"{os.environ.get('USER') or _account()}@{socket.gethostname()}"


def _account() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # as in a container that runs as any user
        return str(os.getuid())
