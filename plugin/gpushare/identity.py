"""What the extender proves itself with over TLS, and whose certificates it believes: a folder of three files.

They are what Kubernetes and cert-manager put into a Secret: `tls.crt`, `tls.key`, and `ca.crt`, whose clients are
believed. They may be renewed at any time.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from plugin.base.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.base.log import Logger

    Marks = tuple[tuple[int, int, int], ...]

_CHAIN, _KEY, _CLIENTS = "tls.crt", "tls.key", "ca.crt"


class Identity:
    """Raises ConfigError where the files cannot be used at first; later on the former ones count until they can."""

    def __init__(self, folder: Path, logger: Logger) -> None:
        self._folder = folder
        self._log = logger
        self._marks = self._look()
        try:
            self._context = self._read()
        except (OSError, ValueError) as error:  # a ValueError: a key with a password, or no PEM
            hint = f"it needs {_CHAIN}, {_KEY} without a password, and {_CLIENTS}, by which clients are known"
            raise ConfigError(f"{folder} cannot be used for TLS: {error}", hint) from error

    def context(self) -> ssl.SSLContext:
        """Return what a connection that begins now is to be served with."""
        marks = self._look()
        if marks != self._marks:
            self._marks = marks
            try:
                self._context = self._read()
                self._log.info("renewed for TLS", folder=str(self._folder))
            except (OSError, ValueError) as error:
                self._log.warning("not renewed for TLS: the former files count", why=str(error)[:256])
        return self._context

    def _look(self) -> Marks:
        marks = []
        for name in (_CHAIN, _KEY, _CLIENTS):
            try:
                found = (self._folder / name).stat()
            except OSError:
                marks.append((0, 0, 0))
            else:
                marks.append((found.st_mtime_ns, found.st_ino, found.st_size))
        return tuple(marks)

    def _read(self) -> ssl.SSLContext:
        for name in (_CHAIN, _KEY, _CLIENTS):
            (self._folder / name).open("rb").close()  # OpenSSL does not say which one it cannot open
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self._folder / _CHAIN, self._folder / _KEY, password=_no_password)
        context.load_verify_locations(self._folder / _CLIENTS)
        context.verify_mode = ssl.CERT_OPTIONAL  # a kubelet that looks whether the extender is ready has none
        return context


def _no_password() -> str:
    raise ValueError(f"{_KEY} has a password")
