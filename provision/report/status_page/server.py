"""Serves the page, its events and its node details over HTTP, on threads of their own.

Nothing that a request says becomes a path, a command or HTML: files are read once at the start, and looked up by name.
What a client may cost is bounded by `serving`: none keeps another waiting, and none keeps the process busy.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, unquote, urlsplit

from provision.base.serving import BoundedHandler, BoundedServer, Limits
from provision.report.status_page.access import COOKIE, Door, is_from_elsewhere, is_of_our_page, is_our_host
from provision.report.status_page.details import node_document
from provision.rollout.status.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from provision.report.status_page.feed import Feed, Message

MAX_CLIENTS: Final = 300
ASK_S: Final = 15.0  # a client has so long to send its request, head and body
TAKE_S: Final = 20.0  # and so long to take its answer; of events, each that fits into no buffer any more
HEARTBEAT_S: Final = 15.0
LOOK_S: Final = 1.0  # after so long a stream notices that it had to go
RETRY_MS: Final = 2000
MAX_FORM: Final = 1024
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with none at all, a form of ours would come from nowhere: `Origin: null`
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_LOGIN_FILES: Final = ("/style.css", "/icon.svg")  # what the form is made of


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where the page is served, and to whom. ``names`` are hosts that requests may name besides addresses."""

    address: str
    port: int
    token: str = ""
    names: frozenset[str] = field(default_factory=frozenset)
    tls: ssl.SSLContext | None = None
    max_clients: int = MAX_CLIENTS
    ask_s: float = ASK_S
    take_s: float = TAKE_S


class PageServer(BoundedServer):
    """The page of one fleet. `serve_forever` runs until `shutdown`."""

    def __init__(self, feed: Feed, settings: Settings) -> None:
        self.feed = feed
        self.settings = settings
        self.door = Door(settings.token)
        self.static = _static_files()
        limits = Limits(clients=settings.max_clients, ask_s=settings.ask_s, take_s=settings.take_s)
        super().__init__((settings.address, settings.port), _Handler, limits, settings.tls)

    @property
    def url(self) -> str:
        """The address of the page."""
        host, port = self.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"{'http' if self.settings.tls is None else 'https'}://{shown}:{port}/"


class _Handler(BoundedHandler):
    """One connection, which is closed after its answer."""

    server: PageServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer with a file, a node, or the events."""
        self.server.understood(self.connection)
        path = urlsplit(self.path).path
        if self._is_refused():
            return
        if not self.server.door.admits(self.headers):
            self._ask_for_token(path)
        elif path == "/login":
            self._redirect("/")
        elif path == "/events":
            self._send_events()
        elif path == "/metrics":
            self._send(HTTPStatus.OK, self.server.feed.metrics(), {"Content-Type": CONTENT_TYPE})
        elif path.startswith("/node/"):
            self._send_node(unquote(path.removeprefix("/node/")))
        else:
            self._send_file("/index.html" if path == "/" else path)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        """Log in or out."""
        form = self._form()
        if form is None:
            return
        self.server.understood(self.connection)
        if self._is_refused() or self._is_of_another_page():
            return
        path = urlsplit(self.path).path
        if path == "/login":
            self._log_in(form)
        elif path == "/logout":
            self.server.door.log_out(self.headers)
            self._redirect("/login", cookie=f"{COOKIE}=; Max-Age=0")
        else:
            self._send(HTTPStatus.NOT_FOUND, b"")

    def _is_refused(self) -> bool:
        if is_our_host(self.headers.get("Host") or "", self.server.settings.names):
            if not is_from_elsewhere(self.headers) or self.headers.get("Sec-Fetch-Mode") == "navigate":
                return False
            self._send(HTTPStatus.FORBIDDEN, b"a page of another site may not ask\n")
            return True
        hint = b"this name is not known here: use the address, or start it with --allow-host NAME\n"
        self._send(HTTPStatus.MISDIRECTED_REQUEST, hint)
        return True

    def _is_of_another_page(self) -> bool:
        if is_of_our_page(self.headers):
            return False
        self._send(HTTPStatus.FORBIDDEN, b"a page of another site may not ask\n")
        return True

    def _ask_for_token(self, path: str) -> None:
        if path == "/login":
            self._send_file("/login.html")
        elif path in _LOGIN_FILES:
            self._send_file(path)
        elif path == "/":
            self._redirect("/login")
        else:
            self._send(HTTPStatus.UNAUTHORIZED, b"", {"WWW-Authenticate": "Bearer"})

    def _form(self) -> bytes | None:
        """Return the body of a request; None where it was answered, or did not come."""
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > MAX_FORM:
            self._send(HTTPStatus.BAD_REQUEST, b"")
            return None
        body = self.rfile.read(int(length))
        return body if len(body) == int(length) else None

    def _log_in(self, body: bytes) -> None:
        form = parse_qs(body.decode(errors="replace"))
        session = self.server.door.log_in(form.get("token", [""])[0])
        if session is None:
            time.sleep(0.5)  # a guess costs time; the token is too long to be guessed anyway
            self._redirect("/login#wrong")
        else:
            secure = "" if self.server.settings.tls is None else "; Secure"
            self._redirect("/", cookie=f"{COOKIE}={session}{secure}")

    def _redirect(self, place: str, cookie: str = "") -> None:
        headers = {"Location": place}
        if cookie:
            headers["Set-Cookie"] = f"{cookie}; Path=/; HttpOnly; SameSite=Lax"
        self._send(HTTPStatus.SEE_OTHER, b"", headers)

    def _send_file(self, path: str) -> None:
        found = self.server.static.get(path)
        if found is None:
            self._send(HTTPStatus.NOT_FOUND, b"")
        else:
            kind, body = found
            self._send(HTTPStatus.OK, body, {"Content-Type": kind})

    def _send_node(self, name: str) -> None:
        feed = self.server.feed
        found = feed.node(name)
        if found is None:
            self._send(HTTPStatus.NOT_FOUND, b"")
            return
        node, status, log = found
        body = json.dumps(node_document(node, status.seen, log, feed.invocation, feed.last.get(node.name))).encode()
        self._send(HTTPStatus.OK, body, {"Content-Type": "application/json"})

    def _send(self, code: HTTPStatus, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.close_connection = True
        self.send_response(code)
        for name, value in {**HEADERS, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _send_events(self) -> None:
        self.close_connection = True
        self.connection.settimeout(self.server.settings.take_s)
        self.server.streams(self.connection)
        self.send_response(HTTPStatus.OK)
        for name, value in {**HEADERS, "Content-Type": "text/event-stream", "Connection": "close"}.items():
            self.send_header(name, value)
        self.send_header("X-Accel-Buffering", "no")  # or a proxy would keep events back
        self.end_headers()
        if self.command == "HEAD":
            return
        asked = parse_qs(urlsplit(self.path).query).get("since", [""])[0]
        ident = self.headers.get("Last-Event-ID") or asked
        self.wfile.write(f"retry: {RETRY_MS}\n\n".encode())
        told = time.monotonic()
        while not self.server.feed.is_closed and self.server.holds(self.connection):
            message = self.server.feed.wait(ident, LOOK_S)
            if message is None and time.monotonic() - told < HEARTBEAT_S:
                continue
            self.wfile.write(b": \n\n" if message is None else _event(message))
            ident = ident if message is None else message.ident
            told = time.monotonic()


def _event(message: Message) -> bytes:
    return f"event: {message.kind}\nid: {message.ident}\ndata: ".encode() + message.body + b"\n\n"


def _static_files() -> dict[str, tuple[str, bytes]]:
    """Return the files of the page by their paths, with their types."""
    folder = files("provision.report.status_page") / "static"
    return {
        f"/{each.name}": (_TYPES[each.name.rpartition(".")[2]], each.read_bytes())
        for each in folder.iterdir()
        if each.name.rpartition(".")[2] in _TYPES
    }
