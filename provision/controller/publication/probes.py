"""Serves what a kubelet and a Prometheus ask of the controller: whether it lives, whether it is ready, and numbers."""

from __future__ import annotations

import threading
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from provision.base.errors import GrapnelError
from provision.base.serving import BoundedHandler, BoundedServer, Limits
from provision.controller.publication.metrics import render_controller
from provision.rollout.status.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from provision.controller.loop import Controller

_PLAIN: Final = "text/plain; charset=utf-8"
LIMITS: Final = Limits(clients=32, ask_s=10.0, take_s=10.0)


class Probes:
    """A small server, on threads of its own while inside. Raises GrapnelError for an address that cannot be had."""

    def __init__(self, address: str, controller: Controller, limits: Limits = LIMITS) -> None:
        try:
            host, port = address.rsplit(":", 1)
            self._server = _Server((host.strip("[]"), int(port)), _Handler, limits)
        except (OSError, ValueError) as error:
            raise GrapnelError(f"--probes {address} cannot be served: {error}", hint="--probes ADDRESS:PORT") from error
        self._server.controller = controller
        self._thread = threading.Thread(target=self._server.serve_forever, name="probes", daemon=True)

    @property
    def port(self) -> int:
        """The port that is served."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(BoundedServer):
    controller: Controller


class _Handler(BoundedHandler):
    server: _Server

    def do_GET(self) -> None:
        """Answer one of three paths."""
        self.server.understood(self.connection)
        controller = self.server.controller
        if self.path == "/metrics":
            self._answer(HTTPStatus.OK, render_controller(controller.counts), CONTENT_TYPE)
        elif self.path in ("/healthz", "/readyz"):
            trouble = controller.trouble() if self.path == "/healthz" else ""
            status = HTTPStatus.SERVICE_UNAVAILABLE if trouble else HTTPStatus.OK
            self._answer(status, f"{trouble or 'ok'}\n".encode(), _PLAIN)
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"/healthz, /readyz, /metrics\n", _PLAIN)

    def _answer(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
