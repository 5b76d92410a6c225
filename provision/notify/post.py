"""Sends one request to a receiver and returns the status of its answer, in bounded time whatever the receiver does.

TLS is verified, redirects are not followed, and nothing of an answer but its status is used.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

if TYPE_CHECKING:
    from collections.abc import Mapping

DEADLINE_S: Final = 10.0
_LATE: Final = "no answer in time"


class PostError(Exception):
    """There was no answer; the message says why, and names no path of the receiver: it may be a secret."""


def place_of(url: str) -> str:
    """Return the part of a URL that may be shown: not its path, which is the whole secret of some receivers."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    deadline_s: float = DEADLINE_S,
    tls: ssl.SSLContext | None = None,
) -> int:
    """Send ``body`` as JSON and return the status of the answer. Raises PostError."""
    parts = urlsplit(url)
    target = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    connection = _connection(url, deadline_s, tls)
    is_cut = threading.Event()
    timer: threading.Timer | None = None
    try:
        connection.connect()
        timer = threading.Timer(deadline_s, _cut, [connection.sock, is_cut])  # a drop at a time resets other clocks
        timer.daemon = True
        timer.start()
        connection.request(
            "POST", target, body, {"Content-Type": "application/json", "User-Agent": "grapnel", **headers}
        )
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise PostError(_reason(error)) from error
    finally:
        if timer is not None:
            timer.cancel()
        connection.close()
    if is_cut.is_set():  # what had come of an answer by then passes for all of it
        raise PostError(_LATE)
    return status


def _connection(url: str, timeout_s: float, tls: ssl.SSLContext | None) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    if parts.scheme != "https":
        return http.client.HTTPConnection(host, port, timeout=timeout_s)
    context = tls or ssl.create_default_context()
    proxy = "" if proxy_bypass(host) else getproxies().get("https", "")
    if not proxy:
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
    via = urlsplit(proxy)
    connection = http.client.HTTPSConnection(via.hostname or "", via.port, timeout=timeout_s, context=context)
    connection.set_tunnel(host, port)
    return connection


def _cut(sock: socket.socket | None, is_cut: threading.Event) -> None:
    is_cut.set()
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return _LATE
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return (
        "it does not answer as an HTTP server does"
        if isinstance(error, http.client.HTTPException)
        else type(error).__name__
    )
