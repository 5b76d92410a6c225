"""Allows OpenSSL to be imported, which the daemon keeps from asyncio at its start (`plugin.cli.run`)."""

from __future__ import annotations

import sys
import threading

_lock = threading.Lock()


def allow_openssl() -> None:
    """Let whoever imports `ssl` have it from now on. In any thread, once asyncio has been imported."""
    with _lock:
        if sys.modules.get("ssl", sys) is None:
            del sys.modules["ssl"]
