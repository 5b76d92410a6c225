"""Answers requests about what a store has, in the words of kube-apiserver."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from lab.apiserver.store import Kubelets, Store, Stored

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator

    from lab.apiserver.store import Event, Key

BOOKMARK_S: Final = 60.0
_EVICTION: Final = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)/eviction")
_COLLECTION: Final = re.compile(r"/api/v1/(nodes|pods)")
_POD: Final = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)(/binding)?")
_NODE: Final = re.compile(r"/api/v1/nodes/([^/]+)")
_LEASES: Final = re.compile(r"/apis/coordination\.k8s\.io/v1/namespaces/([^/]+)/leases(?:/([^/]+))?")


@dataclass
class Server:
    """A server and what can be told to go wrong with it.

    ``requests`` counts requests such as "list pods". ``latency_s`` is how long each takes. ``is_silent``: watches tell
    nothing, and are not ended. ``is_away``: connections are closed without an answer. ``loses`` says which
    events no watch ever tells. ``lost_answers``: of so many requests for a pod nobody hears what came.
    """

    store: Store
    kubelets: Kubelets
    url: str = ""
    latency_s: float = 0.0
    is_silent: bool = False
    is_away: bool = False
    lost_answers: int = 0
    loses: Callable[[Event], bool] = lambda _event: False
    requests: Counter[str] = field(default_factory=Counter)
    watches: set[object] = field(default_factory=set)
    pages: dict[tuple[str, str, int], list[Stored]] = field(default_factory=dict)  # kind, selector, version
    generation: int = 0
    mutex: threading.Lock = field(default_factory=threading.Lock)

    def count(self, what: str) -> None:
        """Count a request."""
        with self.mutex:
            self.requests[what] += 1

    def cut(self) -> None:
        """End all watches, as a load balancer does."""
        with self.store.changed:
            self.generation += 1
            self.store.changed.notify_all()


@contextlib.contextmanager
def serving(
    store: Store, *, grace_s: float = 0.0, port: int = 0, tls: ssl.SSLContext | None = None
) -> Iterator[Server]:
    """Serve while inside; over TLS where there is a context for it."""
    server = Server(store, Kubelets(store, grace_s))
    handler = type("Handler", (_Handler,), {"server_state": server})
    kubelets = threading.Thread(target=server.kubelets.run, name="kubelets", daemon=True)
    with _HttpServer(("127.0.0.1", port), handler) as http:
        if tls is not None:
            http.socket = tls.wrap_socket(http.socket, server_side=True, do_handshake_on_connect=False)
        server.url = f"{'https' if tls else 'http'}://127.0.0.1:{http.server_port}"
        thread = threading.Thread(target=http.serve_forever, args=(0.02,), name="apiserver", daemon=True)
        thread.start()
        kubelets.start()
        try:
            yield server
        finally:
            server.is_away = True
            server.cut()
            server.kubelets.end()
            http.shutdown()
            thread.join()
            kubelets.join()


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that have gone."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server_state: ClassVar[Server]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16

    def do_GET(self) -> None:
        """Answer."""
        state, parts = self.server_state, urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = msgspec.json.decode(self.rfile.read(length)) if length else {}
        if state.is_away:
            self.close_connection = True
            return
        time.sleep(state.latency_s)
        with contextlib.suppress(ConnectionError):
            self._route(unquote(parts.path), dict(parse_qsl(parts.query)), body)
            self.wfile.flush()

    do_POST = do_PUT = do_PATCH = do_GET

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""

    def _route(self, path: str, query: dict[str, str], body: dict[str, Any]) -> None:
        if found := _COLLECTION.fullmatch(path):
            if query.get("watch") == "true":
                self._watch(found[1], query)
            else:
                self._list(found[1], query)
        elif found := _EVICTION.fullmatch(path):
            self._evict((found[1], found[2]), body)
        elif found := _POD.fullmatch(path):
            self._pod((found[1], found[2]), body, is_binding=bool(found[3]))
        elif found := _NODE.fullmatch(path):
            self._node(("", found[1]), body)
        elif found := _LEASES.fullmatch(path):
            self._lease(found[1], found[2] or "", body)
        elif path == "/lab":
            state = self.server_state
            self._answer(200, {"requests": dict(state.requests), "emptied": state.store.emptied})
        elif path.endswith("selfsubjectaccessreviews"):
            self._answer(201, {"status": {"allowed": True}})
        else:
            self._answer(200, {})

    def _answer(self, code: int, thing: object) -> None:
        data = thing if isinstance(thing, bytes) else msgspec.json.encode(thing)
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _refuse(self, code: int, message: str, *causes: str) -> None:
        details = {"causes": [{"reason": "DisruptionBudget", "message": cause} for cause in causes]}
        self._answer(code, {"kind": "Status", "code": code, "message": message, "details": details})

    def _list(self, kind: str, query: dict[str, str]) -> None:
        state, limit = self.server_state, int(query.get("limit", "0"))
        state.count(f"list {kind}")
        token, _, offset = query.get("continue", "").partition(":")
        if token and int(token) < state.store.forgotten:
            self._refuse(410, "the provided continue parameter is too old")
            return
        if token:
            version, first = int(token), int(offset)
            found = state.pages[kind, query.get("fieldSelector", ""), version]
        else:
            (stored, version), first = state.store.every(kind), 0
            matches = _matcher(query.get("fieldSelector", ""))
            found = [each for each in stored if matches(each)]
        page, rest = found[first : first + limit] if limit else found, len(found) - first - limit
        meta = {"resourceVersion": str(version)}
        if limit and rest > 0:
            state.pages[kind, query.get("fieldSelector", ""), version] = found
            meta["continue"] = f"{version}:{first + limit}"
        items = b",".join(each.data for each in page)
        self._answer(200, b'{"metadata":' + msgspec.json.encode(meta) + b',"items":[' + items + b"]}")

    def _watch(self, kind: str, query: dict[str, str]) -> None:
        state, version = self.server_state, int(query["resourceVersion"])
        state.count(f"watch {kind}")
        position = state.store.position(kind, version)
        if position is None:
            self._refuse(410, f"too old resource version: {version} ({state.store.version})")
            return
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        state.watches.add(self)
        try:
            self._tell(kind, position, _matcher(query.get("fieldSelector", "")), float(query["timeoutSeconds"]))
        finally:
            state.watches.discard(self)

    def _tell(self, kind: str, position: int, matches: Callable[[Stored], bool], timeout_s: float) -> None:
        state, store = self.server_state, self.server_state.store
        generation, end = state.generation, time.monotonic() + timeout_s
        while state.generation == generation and time.monotonic() < end:
            with store.changed:
                is_telling, reached = not state.is_silent, 0
                events = store.since(kind, position) if is_telling else []
                if not events:
                    store.changed.wait(min(BOOKMARK_S, max(0.0, end - time.monotonic())))
                    reached = store.version if is_telling and not store.since(kind, position) else 0
            position += len(events)
            lines = [_line(event, matches) for event in events if not state.loses(event)]
            if reached:
                lines = [b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%d"}}}\n' % reached]
            for line in lines:
                if line:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def _node(self, key: Key, patch: dict[str, Any]) -> None:
        state = self.server_state
        state.count(f"{'patch' if self.command == 'PATCH' else 'get'} nodes")
        with state.store.changed:
            stored = state.store.get("nodes", key)
            if stored is None:
                self._refuse(404, f'nodes "{key[1]}" not found')
                return
            if self.command == "PATCH":
                wanted = patch["metadata"].pop("resourceVersion", str(stored.version))
                if wanted != str(stored.version):
                    self._refuse(409, "the object has been modified; please apply your changes to the latest version")
                    return
                stored = state.store.change("nodes", key, lambda node: _merge(node, patch))
        self._answer(200, stored.data)

    def _pod(self, key: Key, body: dict[str, Any], *, is_binding: bool) -> None:
        state = self.server_state
        state.count("bind pods" if is_binding else f"{'patch' if self.command == 'PATCH' else 'get'} pods")
        with state.store.changed:
            stored = state.store.get("pods", key)
            if stored is None:
                self._refuse(404, f'pods "{key[1]}" not found')
                return
            wanted, found = body.get("metadata", {}), stored.load()["metadata"]
            if wanted.pop("uid", found["uid"]) != found["uid"] or (is_binding and stored.node):
                words = f"pod {key[1]} is another one, or already assigned to a node"
                self._refuse(409 if is_binding else 422, words)
                return
            if is_binding:
                patch = {"metadata": {"annotations": wanted.get("annotations", {})}}
                patch["spec"] = {"nodeName": body["target"]["name"]}
                state.store.change("pods", key, lambda pod: _merge(pod, patch))
            elif self.command == "PATCH":
                stored = state.store.change("pods", key, lambda pod: _merge(pod, body))
        if state.lost_answers:
            with state.mutex:
                state.lost_answers -= 1
            self.close_connection = True
            return
        self._answer(201 if is_binding else 200, b'{"status":"Success"}' if is_binding else stored.data)

    def _evict(self, key: Key, body: dict[str, Any]) -> None:
        state = self.server_state
        state.count("evict pods")
        stored = state.store.get("pods", key)
        uid = body.get("deleteOptions", {}).get("preconditions", {}).get("uid")
        if stored is None or stored.load()["metadata"]["uid"] != uid:
            self._refuse(404, f'pods "{key[1]}" not found')
        elif reason := state.kubelets.refuse(key):
            self._refuse(429, "Cannot evict pod as it would violate the pod's disruption budget.", reason)
        else:
            state.kubelets.evict(key)
            self._answer(201, {"status": "Success"})

    def _lease(self, namespace: str, name: str, body: dict[str, Any]) -> None:
        state = self.server_state
        state.count(f"{self.command.lower()} leases")
        name = name or body["metadata"]["name"]
        stored = state.store.get("leases", (namespace, name))
        if self.command == "GET" and stored is None:
            self._refuse(404, f'leases "{name}" not found')
            return
        if self.command != "GET" or stored is None:
            version = body["metadata"].pop("resourceVersion", None)
            if stored is not None and version != str(stored.version):
                self._refuse(409, "the object has been modified")
                return
            stored = state.store.put("leases", body)
        self._answer(200, stored.data)

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Return the moment for the Date header."""
        return formatdate(timestamp, usegmt=True)


def _line(event: Event, matches: Callable[[Stored], bool]) -> bytes:
    """Return the line of a watch for an event, empty where it is none for this selector."""
    before = event.before if event.before is not None and matches(event.before) else None
    after = event.after if event.after is not None and matches(event.after) else None
    if after is not None:
        kind, data = b"ADDED" if before is None else b"MODIFIED", after.data
    elif before is not None:
        thing = (event.after or before).load()
        thing["metadata"]["resourceVersion"] = str(event.version)
        kind, data = b"DELETED", msgspec.json.encode(thing)
    else:
        return b""
    return b'{"type":"%s","object":%s}\n' % (kind, data)


def _matcher(selector: str) -> Callable[[Stored], bool]:
    """Return what a field selector says of an object."""
    terms = [re.fullmatch(r"([a-zA-Z.]+)(!?=)(.*)", term) for term in selector.split(",") if term]

    def matches(stored: Stored) -> bool:
        fields = {"metadata.name": stored.key[1], "spec.nodeName": stored.node, "status.phase": stored.phase}
        return all(term and (fields[term[1]] == term[3]) == (term[2] == "=") for term in terms)

    return matches


def _merge(thing: dict[str, Any], patch: dict[str, Any]) -> None:
    """Apply a JSON merge patch."""
    for key, value in patch.items():
        if value is None:
            thing.pop(key, None)
        elif isinstance(value, dict):
            _merge(thing.setdefault(key, {}), value)
        else:
            thing[key] = value
