"""Says who may look at the page. Pure but for the sessions that it remembers.

On loopback everybody may who has an account on this machine; elsewhere it takes a token. The token is typed into a
form or sent in a header, and never part of an address: addresses are kept in histories and logs. A browser gets a
cookie that is good for this process alone. A page of another site can neither read this one, for it is of another
origin, nor pretend to be it by pointing its own name at this address (DNS rebinding): the name in a request has to be
an address or one of ours.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import threading
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Protocol

    class Headers(Protocol):
        """What a request says of itself, looked up without regard to case."""

        def get(self, name: str, /) -> str | None: ...


COOKIE: Final = "grapnel-status"
MAX_SESSIONS: Final = 1000  # browsers; the oldest has to give its token again
TOKEN_BYTES: Final = 24


def new_token() -> str:
    """Return a token that nobody guesses."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def is_loopback(address: str) -> bool:
    """Tell whether only this machine reaches the address."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def is_our_host(header: str, names: Collection[str]) -> bool:
    """Tell whether a Host header is an address, localhost, or one of ``names``."""
    host = _without_port(header.strip().lower())
    if host in names or host == "localhost":
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_from_elsewhere(headers: Headers) -> bool:
    """Tell whether a page of another site makes the browser ask: it gets nothing, not even to know that we are here."""
    return headers.get("Sec-Fetch-Site") in ("cross-site", "same-site")


def is_of_our_page(headers: Headers) -> bool:
    """Tell whether a request that changes something comes from our own page, or from no browser.

    What browsers say of the site counts before the origin: a proxy may have changed the Host that an origin is compared
    with. ``Origin: null`` is anybody's: a frame in a sandbox sends it, and so may a page with data for an address.
    """
    site = headers.get("Sec-Fetch-Site")
    if site is not None:
        return site == "same-origin"
    origin = headers.get("Origin")
    return origin is None or (origin != "null" and urlsplit(origin).netloc == headers.get("Host"))


def _without_port(host: str) -> str:
    if host.startswith("["):
        address, _, port = host[1:].partition("]")
        return address if not port or port.startswith(":") else ""
    return host.rpartition(":")[0] if host.count(":") == 1 else host


class Door:
    """Lets in who has the token; without a token, everybody."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._sessions: dict[str, None] = {}
        self._mutex = threading.Lock()

    @property
    def is_open(self) -> bool:
        """Whether no token is asked for."""
        return not self._token

    def admits(self, headers: Headers) -> bool:
        """Tell whether a request may be answered: by its cookie, or by a token in `Authorization: Bearer`."""
        if self.is_open:
            return True
        scheme, _, given = (headers.get("Authorization") or "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(given.strip()):
            return True
        with self._mutex:
            return any(value in self._sessions for value in _cookies(headers.get("Cookie") or ""))

    def log_in(self, token: str) -> str | None:
        """Return the value of a new cookie; None for a wrong token."""
        if self.is_open or not self._is_token(token.strip()):
            return None
        session = secrets.token_urlsafe(TOKEN_BYTES)
        with self._mutex:
            self._sessions[session] = None
            while len(self._sessions) > MAX_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
        return session

    def log_out(self, headers: Headers) -> None:
        """Forget the cookie of a request."""
        with self._mutex:
            for value in _cookies(headers.get("Cookie") or ""):
                self._sessions.pop(value, None)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(errors="replace"), self._token)


def _cookies(header: str) -> list[str]:
    """Return the values of our cookies.

    Cookies know no ports: those of every program on this host come along, and Python's reader gives up all of them for
    one that it finds wrong, such as JSON.
    """
    pairs = (part.strip().partition("=") for part in header.split(";"))
    return [value for name, _, value in pairs if name == COOKIE]
