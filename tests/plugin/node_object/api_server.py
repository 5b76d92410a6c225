"""A small API server: HTTPS with client certificates or tokens, one Node, events; it fails as a test wants.

It follows Kubernetes where the daemon relies on it: patches of conditions by type, one owner for each label, events by
name, `Status` objects for failures. What a real one says is tested in `test_real_api.py`.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from lab.cluster.certificates import Certificates

NODE = "n1"
TOKEN = "the-token-of-a-test"  # noqa: S105 - of this file alone


@dataclass(frozen=True)
class Failure:
    """An answer that is not the right one, once `until` has come, with `bytes_s` seconds between its bytes."""

    status: int = 500
    message: str = "it does not work"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    until: threading.Event | None = None
    bytes_s: float = 0.0
    raw: bytes | None = None


@dataclass
class State:
    """What the server holds, and what it was asked."""

    uid: str = "uid-1"
    version: int = 7
    exists: bool = True
    labels: dict[str, tuple[str, str]] = field(default_factory=dict)  # value, owner
    conditions: dict[str, dict[str, str]] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    evicted: list[tuple[str, str]] = field(default_factory=list)  # path and uid
    calls: list[tuple[str, str]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)  # one each for the next calls
    standing: dict[str, Failure] = field(default_factory=dict)  # for every call whose path has this in it
    tokens: set[str] = field(default_factory=set)  # accepted beside certificates
    watches: int = 0  # that have begun
    told: int = 0  # events of watches
    ended: int = 0  # another number ends all of them


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ApiServer

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""

    def do_GET(self) -> None:
        query = dict(parse_qsl(urlsplit(self.path).query))
        if query.get("watch") != "true":
            self._answer({})
        elif not self._is_refused():
            self._watch(query)

    def _is_refused(self) -> bool:
        """Answer a watch that is not to begin."""
        state = self.server.state
        with self.server.lock:
            state.calls.append((self.command, self.path))
            failure = next((each for part, each in state.standing.items() if part in self.path), None)
        if failure is not None:
            self._fail(failure)
        return failure is not None

    def _watch(self, query: dict[str, str]) -> None:
        """Tell of the Node as it is, and again whenever its labels have changed. There is no version to begin with."""
        state = self.server.state
        assert query["fieldSelector"] == f"metadata.name={NODE}"
        state.watches += 1
        self.close_connection = True
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        ended, told, what = state.ended, None, "ADDED"
        while state.ended == ended:
            labels = dict(state.labels)
            if labels != told:
                line = json.dumps({"type": what, "object": self.server.document()}).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                told, what = labels, "MODIFIED"
                state.told += 1
            time.sleep(0.01)
        self.wfile.write(b"0\r\n\r\n")

    def do_POST(self) -> None:
        self._answer(self._body())

    def do_PATCH(self) -> None:
        self._answer(self._body())

    def _body(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        return found

    def _answer(self, body: dict[str, Any]) -> None:
        state = self.server.state
        with self.server.lock:
            state.calls.append((self.command, self.path))
            failure = next((each for part, each in state.standing.items() if part in self.path), None)
            if failure is None and state.failures:
                failure = state.failures.pop(0)
            status, document = (0, {}) if failure is not None else self._route(body)
        if failure is not None:
            self._fail(failure)
        else:
            self._send(status, json.dumps(document).encode(), ())

    def _fail(self, failure: Failure) -> None:
        if failure.raw is not None:
            self.wfile.write(failure.raw)
            self.close_connection = True
            return
        if failure.until is not None:
            failure.until.wait()
        status = {"kind": "Status", "status": "Failure", "message": failure.message, "code": failure.status}
        content = json.dumps(status).encode() if failure.body is None else failure.body
        if not failure.bytes_s:
            self._send(failure.status, content, failure.headers)
            return
        self.send_response(failure.status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        for byte in content:
            self.wfile.write(bytes([byte]))
            time.sleep(failure.bytes_s)

    def _send(self, status: int, content: bytes, headers: tuple[tuple[str, str], ...]) -> None:
        self.send_response(status)
        for name, value in (*headers, ("Content-Type", "application/json"), ("Content-Length", str(len(content)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _route(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        state, parts = self.server.state, urlsplit(self.path)
        if not self._is_known():
            return refusal(401, "Unauthorized")
        if parts.path.endswith("/eviction"):
            state.evicted.append((parts.path, body["deleteOptions"]["preconditions"]["uid"]))
            return 201, {"kind": "Status", "status": "Success"}
        if parts.path.startswith("/api/v1/namespaces/default/events"):
            return self._event(parts.path.rpartition("/")[2], body)
        if not state.exists or parts.path.split("/")[4] != NODE:
            return refusal(404, f'nodes "{NODE}" not found')
        if self.command == "GET":
            return 200, self.server.document()
        if parts.path.endswith("/status"):
            for row in body["status"]["conditions"]:
                state.conditions[row["type"]] = {**state.conditions.get(row["type"], {}), **row}
            return 200, self.server.document()
        if "annotations" in body["metadata"]:
            merged = {**state.annotations, **body["metadata"]["annotations"]}
            state.annotations = {key: value for key, value in merged.items() if value is not None}
            return 200, self.server.document()
        return self._apply(body["metadata"])

    def _is_known(self) -> bool:
        assert isinstance(self.connection, ssl.SSLSocket)
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        return token in self.server.state.tokens or bool(self.connection.getpeercert())

    def _event(self, name: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        events = self.server.state.events
        if self.command == "POST":
            name = body["metadata"]["name"]
            if name in events:
                return refusal(409, "already exists")
            events[name] = body
        elif name not in events:
            return refusal(404, f'events "{name}" not found')
        else:
            events[name] = {**events[name], **body}
        return 201, events[name]

    def _apply(self, metadata: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        state = self.server.state
        if metadata["uid"] != state.uid:
            return refusal(409, "uid mismatch")
        causes = [
            {
                "reason": "FieldManagerConflict",
                "message": f'conflict with "{state.labels[key][1]}" using v1',
                "field": f".metadata.labels.{key}",
            }
            for key, value in metadata["labels"].items()
            if key in state.labels and state.labels[key][1] != "grapnel-node" and state.labels[key][0] != value
        ]
        if causes:
            return 409, {**refusal(409, "Apply failed")[1], "details": {"causes": causes}}
        others = {key: pair for key, pair in state.labels.items() if pair[1] != "grapnel-node"}
        state.labels = {**{key: (value, "grapnel-node") for key, value in metadata["labels"].items()}, **others}
        return 200, self.server.document()


def refusal(code: int, message: str) -> tuple[int, dict[str, Any]]:
    return code, {"kind": "Status", "status": "Failure", "message": message, "code": code}


class ApiServer(ThreadingHTTPServer):
    """On a port of its own; `close` and `open_again` are an outage."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, certificates: Certificates, port: int = 0, state: State | None = None) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.certificates = certificates
        self.state = state or State()
        self.lock = threading.Lock()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.certificate("apiserver"), certificates.key("apiserver"))
        context.load_verify_locations(certificates.certificate("ca"))
        context.verify_mode = ssl.CERT_OPTIONAL
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def handle_error(self, *_: object) -> None:
        """A client that hangs up, or does not like the certificate, is part of the tests."""

    def document(self) -> dict[str, Any]:
        state = self.state
        labels = {key: value for key, (value, _) in state.labels.items()}
        metadata = {
            "name": NODE,
            "uid": state.uid,
            "resourceVersion": str(state.version),
            "labels": labels,
            "annotations": state.annotations,
        }
        return {"kind": "Node", "metadata": metadata, "status": {"conditions": list(state.conditions.values())}}

    def count(self, part: str) -> int:
        """How often something was asked whose method and path have this in them."""
        return sum(part in f"{method} {path}" for method, path in tuple(self.state.calls))

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()

    def open_again(self) -> ApiServer:
        return ApiServer(self.certificates, self.port, self.state)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def write_kubeconfig(path: Path, of: ApiServer, user: dict[str, Any] | None = None, **cluster: object) -> Path:
    """Write a kubeconfig for the server; by default with a client certificate in files."""
    made = of.certificates
    if user is None:
        user = {"client-certificate": str(made.certificate("admin")), "client-key": str(made.key("admin"))}
    described = {
        "server": f"https://127.0.0.1:{of.port}",
        "certificate-authority": str(made.certificate("ca")),
        **cluster,
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": described}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(config))
    return path
