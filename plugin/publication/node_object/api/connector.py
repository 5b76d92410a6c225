"""Connects to the API server for whoever of the daemon asks it. OpenSSL is loaded by the first connection."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugin.publication.node_object.api.connection import Connection
    from plugin.publication.node_object.api.credentials import Credentials
    from plugin.publication.node_object.api.messages import Limits

_UNAUTHORIZED = 401
_openssl = threading.Lock()


class Connector:
    """`source` is a kubeconfig's path or "in-cluster". In any thread, once asyncio has been imported."""

    def __init__(self, source: str, environment: Mapping[str, str]) -> None:
        self._source = source
        self._environment = environment
        self._lock = threading.Lock()  # credentials are not safe for threads
        self._credentials: Credentials | None = None

    def connect(self, limits: Limits | None = None) -> Connection:
        """Return a connection with the credentials as they are now; raises ClusterError."""
        _allow_openssl()
        from plugin.publication.node_object.api.connection import Connection
        from plugin.publication.node_object.api.credentials import Credentials

        with self._lock:
            if self._credentials is None:
                self._credentials = Credentials(self._source, self._environment)
            access = self._credentials.current()
        return Connection(access, self._environment, limits)

    def hear(self, status: int) -> None:
        """Have the credentials read again for the next connection, where the answer is that they are not accepted."""
        if status != _UNAUTHORIZED:
            return
        with self._lock:
            if self._credentials is not None:
                self._credentials.forget()


def _allow_openssl() -> None:
    """Let `ssl` be imported from now on, which the daemon keeps from asyncio at its start (`plugin.cli.run`)."""
    with _openssl:
        if sys.modules.get("ssl", sys) is None:
            del sys.modules["ssl"]
