"""Delivers messages to one receiver, in order, on a thread of its own, with growing pauses between attempts.

The queue is bounded. What does not fit, what is refused for too long, and what is left when the run ends is dropped,
counted, and told at the end.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import http.client
import queue
import random
import secrets
import ssl
import threading
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from provision.base.asking import Question, ask
from provision.report.notify.news import encode, headers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from provision.report.notify.news import Message

PAUSES_S: Final = (1.0, 5.0, 20.0, 60.0, 180.0)  # between attempts; after the last one a message is dropped
MAX_WAITING: Final = 1000
GONE: Final = 410  # the receiver wants nothing more


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """Who is told: where, what, and the key that proves it."""

    url: str = field(repr=False)
    key: bytes = field(repr=False)
    types: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Letter:
    ident: str
    body: bytes


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


PREFIX: Final = "whsec_"
MIN_BYTES: Final = 24  # the specification: between 24 and 64 bytes
MAX_BYTES: Final = 64


def parse_secret(text: str) -> bytes:
    """Return the key of ``whsec_`` and base64. Raises ValueError, which does not repeat it."""
    try:
        key = base64.b64decode(text.strip().removeprefix(PREFIX).encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise ValueError("it is not base64") from None
    if not MIN_BYTES <= len(key) <= MAX_BYTES:
        raise ValueError(f"it has {len(key)} bytes, and needs {MIN_BYTES} to {MAX_BYTES}")
    return key


def sign(key: bytes, ident: str, timestamp: int, body: bytes) -> str:
    """Return the value of the header ``webhook-signature``; ``timestamp`` is in seconds since 1970."""
    signed = f"{ident}.{timestamp}.".encode() + body
    return f"v1,{base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()}"


class Webhook:
    """The deliveries to one receiver. `tell` never blocks."""

    def __init__(
        self,
        receiver: Receiver,
        *,
        send: Callable[[str, bytes, Mapping[str, str]], int] = post,
        clock: Callable[[], float] = time.time,
        pauses_s: tuple[float, ...] = PAUSES_S,
    ) -> None:
        self._receiver = receiver
        self._send = send
        self._clock = clock
        self._pauses_s = pauses_s
        self._queue: queue.Queue[_Letter | None] = queue.Queue(MAX_WAITING)
        self._closing = threading.Event()
        self._told = self._delivered = 0
        self._trouble = ""
        self._is_gone = False
        self._thread = threading.Thread(target=self._deliver, name="webhook", daemon=True)
        self._thread.start()

    def tell(self, message: Message) -> None:
        """Have a message delivered, if the receiver wants such ones."""
        if message.type not in self._receiver.types:
            return
        self._told += 1
        letter = _Letter(f"msg_{secrets.token_hex(16)}", encode(message))
        try:
            self._queue.put_nowait(letter)
        except queue.Full:
            self._trouble = self._trouble or f"more than {MAX_WAITING} were waiting"

    def hurry(self) -> None:
        """Have what is left sent without a pause, once more each; nothing is told after it."""
        self._closing.set()
        threading.Thread(target=self._queue.put, args=[None], name="webhook-end", daemon=True).start()

    def close(self, timeout_s: float) -> str:
        """Wait after `hurry`, and return what was not delivered and why; empty if nothing."""
        self._thread.join(timeout_s)
        lost = self._told - self._delivered
        if not lost:
            return ""
        why = self._trouble or "the run ended before they were sent"
        return f"webhook {place_of(self._receiver.url)}: {lost} of {self._told} notifications were not delivered: {why}"

    def _deliver(self) -> None:
        while (letter := self._queue.get()) is not None:
            if not self._is_gone and self._try(letter):
                self._delivered += 1

    def _try(self, letter: _Letter) -> bool:
        """Send a letter until it is taken; return whether it was."""
        for pause_s in (*self._pauses_s, None):
            is_last = pause_s is None or self._closing.is_set()
            if self._attempt(letter):
                return True
            if self._is_gone or is_last or pause_s is None:
                return False
            self._closing.wait(pause_s * random.uniform(0.8, 1.2))
        return False

    def _attempt(self, letter: _Letter) -> bool:
        now = int(self._clock())
        signature = sign(self._receiver.key, letter.ident, now, letter.body)
        try:
            code = self._send(self._receiver.url, letter.body, headers_of(letter.ident, now, signature))
        except PostError as error:
            self._trouble = str(error)
            return False
        if HTTPStatus.OK <= code < HTTPStatus.MULTIPLE_CHOICES:
            return True
        self._is_gone = code == GONE
        self._trouble = f"it answers {code}"
        if HTTPStatus.MULTIPLE_CHOICES <= code < HTTPStatus.BAD_REQUEST:
            self._trouble = f"it answers {code}, and redirects are not followed"
        return False
