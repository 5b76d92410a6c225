"""Serves the page, its events and its node details over HTTP, on threads of their own.

Nothing that a request says becomes a path, a command or HTML: files are read once at the start, and looked up by name.
A client has so long to say what it wants and to take what it is sent; each has a thread of its own, and there is an end
to their number. So none keeps another waiting, and none keeps the process busy.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from provision.rollout.status.metrics import CONTENT_TYPE
from provision.status_page.access import COOKIE, Door, is_from_elsewhere, is_our_host
from provision.status_page.details import node_document

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from provision.status_page.feed import Feed, Message

MAX_CLIENTS: Final = 300
ASK_S: Final = 15.0  # a client has so long to send its request
TAKE_S: Final = 20.0  # and so long to take what fits into no buffer any more
HEARTBEAT_S: Final = 15.0
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
    "Referrer-Policy": "no-referrer",
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


class PageServer(ThreadingHTTPServer):
    """The page of one fleet. `serve_forever` runs until `shutdown`."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, feed: Feed, settings: Settings) -> None:
        self.address_family = socket.AF_INET6 if ":" in settings.address else socket.AF_INET
        self.feed = feed
        self.settings = settings
        self.door = Door(settings.token)
        self.static = _static_files()
        self._mutex = threading.Lock()
        self._clients: dict[socket.socket, float | None] = {}  # when each came, None once it has said what it wants
        super().__init__((settings.address, settings.port), _Handler)

    @property
    def url(self) -> str:
        """The address of the page."""
        host, port = self.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"{'http' if self.settings.tls is None else 'https'}://{shown}:{port}/"

    def server_bind(self) -> None:
        """Bind without asking a resolver for this machine's name, as the base class would."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ANN401, ARG002 - the base class's types
        """Take a client in unless there are too many already."""
        with self._mutex:
            if len(self._clients) >= self.settings.max_clients:
                return False
            self._clients[request] = time.monotonic()
            return True

    def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the base class's types
        """Answer on the client's own thread; that is where TLS is agreed on, too."""
        request.settimeout(self.settings.ask_s)
        if self.settings.tls is None:
            super().finish_request(request, client_address)
            return
        with contextlib.suppress(OSError):
            secured = self.settings.tls.wrap_socket(request, server_side=True)
            with self._mutex:
                self._clients[secured] = self._clients.pop(request, time.monotonic())
            try:
                super().finish_request(secured, client_address)
            finally:
                self._forget(secured)
                secured.close()

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 - the base class's type
        """Forget a client."""
        self._forget(request)
        super().shutdown_request(request)

    def is_understood(self, connection: socket.socket) -> None:
        """Note that a client has said what it wants: it is not asked to hurry any more."""
        with self._mutex:
            if connection in self._clients:
                self._clients[connection] = None

    def service_actions(self) -> None:
        """End connections whose request does not come; called every half second. A drop at a time resets no clock."""
        late = time.monotonic() - self.settings.ask_s
        with self._mutex:
            for client, came in self._clients.items():
                if came is not None and came < late:  # whoever closes it forgets it before, so it is open
                    with contextlib.suppress(OSError):  # not its own `shutdown`: see ``hang_up``
                        socket.socket.shutdown(client, socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the base class's types
        """Say nothing: a client that goes away or talks nonsense is no news, and a bug shows on the page."""

    def _forget(self, client: socket.socket) -> None:
        with self._mutex:
            self._clients.pop(client, None)


class _Handler(BaseHTTPRequestHandler):
    """One connection, which is closed after its answer."""

    server: PageServer
    server_version = "grapnel"
    sys_version = ""
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer with a file, a node, or the events."""
        self.server.is_understood(self.connection)
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

    do_HEAD = do_GET  # noqa: N815 - the base class's name

    def do_POST(self) -> None:
        """Log in or out."""
        self.server.is_understood(self.connection)
        if self._is_refused() or self._is_of_another_origin():
            return
        path = urlsplit(self.path).path
        if path == "/login":
            self._log_in()
        elif path == "/logout":
            self.server.door.log_out(self.headers)
            self._redirect("/login", cookie=f"{COOKIE}=; Max-Age=0")
        else:
            self._send(HTTPStatus.NOT_FOUND, b"")

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class's name
        """Keep no log: who looks is nobody's business."""

    def _is_refused(self) -> bool:
        if is_our_host(self.headers.get("Host") or "", self.server.settings.names):
            if not is_from_elsewhere(self.headers) or self.headers.get("Sec-Fetch-Mode") == "navigate":
                return False
            self._send(HTTPStatus.FORBIDDEN, b"a page of another site may not ask\n")
            return True
        hint = b"this name is not known here: use the address, or start it with --allow-host NAME\n"
        self._send(HTTPStatus.MISDIRECTED_REQUEST, hint)
        return True

    def _is_of_another_origin(self) -> bool:
        origin = self.headers.get("Origin")  # "null": our own form, whose page sends no referrer
        if origin in (None, "null") or urlsplit(origin).netloc == self.headers.get("Host"):
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

    def _log_in(self) -> None:
        length = self.headers.get("Content-Length") or ""
        if not length.isdecimal() or int(length) > MAX_FORM:
            self._send(HTTPStatus.BAD_REQUEST, b"")
            return
        form = parse_qs(self.rfile.read(int(length)).decode(errors="replace"))
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
        found = self.server.feed.node(name)
        if found is None:
            self._send(HTTPStatus.NOT_FOUND, b"")
            return
        node, status, log = found
        body = json.dumps(node_document(node, status.seen, log)).encode()
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
        self.connection.settimeout(TAKE_S)
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
        while not self.server.feed.is_closed:
            message = self.server.feed.wait(ident, HEARTBEAT_S)
            self.wfile.write(b": \n\n" if message is None else _event(message))
            ident = ident if message is None else message.ident


def _event(message: Message) -> bytes:
    return f"event: {message.kind}\nid: {message.ident}\ndata: ".encode() + message.body + b"\n\n"


def _static_files() -> dict[str, tuple[str, bytes]]:
    """Return the files of the page by their paths, with their types."""
    folder = files("provision.status_page") / "static"
    return {
        f"/{each.name}": (_TYPES[each.name.rpartition(".")[2]], each.read_bytes())
        for each in folder.iterdir()
        if each.name.rpartition(".")[2] in _TYPES
    }
