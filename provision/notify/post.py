"""Sends one request to a receiver and returns the status of its answer, in bounded time whatever the receiver does.

TLS is verified, redirects are not followed, and nothing of an answer but its status is used.
"""

from __future__ import annotations

import contextlib
import http.client
import ssl
import threading
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from provision.hang_up import HangUp

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
    sent = {"Content-Type": "application/json", "User-Agent": "grapnel", **headers}
    try:
        connection.connect()
        with _limit(connection, deadline_s, is_cut):
            connection.request("POST", target, body, sent)
            status = connection.getresponse().status
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise PostError(_LATE if is_cut.is_set() else _reason(error)) from error
    finally:
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


@contextlib.contextmanager
def _limit(connection: http.client.HTTPConnection, seconds: float, is_cut: threading.Event) -> Iterator[None]:
    """End a connection after so many seconds: an answer that comes a drop at a time resets every other clock."""
    with HangUp(connection.sock.fileno()) as hang_up:

        def cut() -> None:
            is_cut.set()
            hang_up()

        timer = threading.Timer(seconds, cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


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
