"""A server with the query API, and gates that ask it."""

from __future__ import annotations

import contextlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from provision.declaration.spec.model import QueryGate

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRING = 'ALERTS{alertstate="firing"}'


@dataclass
class Api:
    """What the server answers, and what it was asked."""

    port: int = 0
    code: int = 200
    body: bytes = b""
    asked: list[dict[str, Any]] = field(default_factory=list)

    def returns(self, *series: dict[str, str], **more: object) -> None:
        """Answer with samples of 1."""
        result = [{"metric": metric, "value": [1767225600, "1"]} for metric in series]
        self.says({"status": "success", "data": {"resultType": "vector", "result": result}, **more})

    def says(self, document: object, code: int = 200) -> None:
        self.code, self.body = code, json.dumps(document).encode()


@contextlib.contextmanager
def serving() -> Iterator[Api]:
    api = Api()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            api.asked.append({"path": url.path, "authorization": self.headers.get("Authorization"), **query})
            self.send_response(api.code)
            if api.code in (301, 302):
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.send_header("Content-Length", str(len(api.body)))
            self.end_headers()
            self.wfile.write(api.body)

        def log_message(self, *_about: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        api.port = server.server_port
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield api
        finally:
            server.shutdown()
            thread.join()


def gate(url: str = "http://127.0.0.1:9", **more: Any) -> QueryGate:
    return QueryGate(**{"name": "alerts", "prometheus": url, "query": FIRING, **more})
