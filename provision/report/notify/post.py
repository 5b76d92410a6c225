"""Sends one request to a receiver and returns the status of its answer, in bounded time whatever the receiver does.

TLS is verified, redirects are not followed, and nothing of an answer but its status is used.
"""

from __future__ import annotations

import http.client
import ssl
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from provision.base.asking import Question, ask

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
    sent = {"Content-Type": "application/json", "User-Agent": "grapnel", **headers}
    question = Question(
        method="POST", url=url, headers=sent, body=body, deadline_s=deadline_s, tls=tls, uses_proxy=True
    )
    try:
        return ask(question).status
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise PostError(_reason(error)) from error


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
