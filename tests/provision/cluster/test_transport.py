"""Credentials and connections: the messages when they fail, which contain no secret."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from provision.cluster.errors import KubeconfigError, RefusedError
from provision.cluster.kubernetes.api.exchange import MERGE_PATCH, Request
from provision.cluster.kubernetes.api.kubeconfig import Kubeconfig
from provision.cluster.kubernetes.api.transport import Transport
from provision.rollout.errors import ClusterError, UnreachableError
from tests.provision.cluster.expired import expired_certificate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET = "not-to-be-seen"  # noqa: S105 - stands for one
GET = Request(method="GET", path="/api/v1/nodes", query={"limit": 5, "fieldSelector": "a!=b"}, timeout_s=60.0)


class Echo(BaseHTTPRequestHandler):
    """Echoes requests; refuses every token that is not in ``accepted``."""

    accepted: frozenset[str] | None = None

    def do_GET(self) -> None:
        """Answer."""
        token = self.headers.get("Authorization", "")
        self.send_response(200 if self.accepted is None or token in self.accepted else 401)
        self.end_headers()
        length = int(self.headers.get("Content-Length") or 0)
        seen = {
            "path": self.path,
            "authorization": token,
            "type": self.headers.get("Content-Type"),
            "agent": self.headers.get("User-Agent"),
            "body": self.rfile.read(length).decode(),
        }
        self.wfile.write(json.dumps(seen).encode())

    do_PATCH = do_GET

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    handler = type("OneEcho", (Echo,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def kubeconfig(server: ThreadingHTTPServer | str, **user: Any) -> Kubeconfig:
    url = server if isinstance(server, str) else f"http://127.0.0.1:{server.server_port}"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": url}}],
        "users": [{"name": "x", "user": user}],
    }
    return Kubeconfig(context="x", server=url, document=document)


def echo(transport: Transport, request: Request = GET) -> dict[str, Any]:
    seen: dict[str, Any] = json.loads(transport.send(request).body)
    return seen


def plugin(folder: Path, code: str) -> dict[str, Any]:
    """Return an exec plugin that runs ``code``."""
    path = folder / "plugin.py"
    path.write_text(code)
    return {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, "args": [str(path)]}


def test_a_request_arrives_as_it_was_meant(server: ThreadingHTTPServer) -> None:
    transport = Transport(kubeconfig(server, token=SECRET))
    patch = Request(method="PATCH", path="/api/v1/nodes/n1", body={"a": None}, content_type=MERGE_PATCH)

    assert echo(transport) == {
        "path": "/api/v1/nodes?limit=5&fieldSelector=a%21%3Db",
        "authorization": f"Bearer {SECRET}",
        "type": "application/json",
        "agent": "grapnel",
        "body": "",
    }
    seen = echo(transport, patch)
    assert (seen["type"], json.loads(seen["body"])) == (MERGE_PATCH, {"a": None})


def test_a_token_may_come_from_a_file_with_a_line_break(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")

    assert echo(Transport(kubeconfig(server, tokenFile=str(file))))["authorization"] == f"Bearer {SECRET}"


def test_a_token_that_was_exchanged_meanwhile_is_read_again(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    server.RequestHandlerClass.accepted = frozenset({"Bearer old"})  # type: ignore[attr-defined] # it is an Echo
    transport = Transport(kubeconfig(server, tokenFile=str(file)))
    assert transport.send(GET).code == 200

    file.write_text("new")
    server.RequestHandlerClass.accepted = frozenset({"Bearer new"})  # type: ignore[attr-defined] # it is an Echo

    assert transport.send(GET).code == 200


def test_of_many_threads_whose_token_runs_out_at_once_none_is_told_that_it_is_refused(
    server: ThreadingHTTPServer, tmp_path: Path
) -> None:
    """All but the first were: a controller ended with them."""
    file = tmp_path / "token"
    file.write_text("old")
    server.RequestHandlerClass.accepted = frozenset({"Bearer old"})  # type: ignore[attr-defined] # it is an Echo
    transport = Transport(kubeconfig(server, tokenFile=str(file)))
    assert transport.send(GET).code == 200

    file.write_text("new")
    server.RequestHandlerClass.accepted = frozenset({"Bearer new"})  # type: ignore[attr-defined] # it is an Echo
    together = threading.Barrier(12)

    def ask(number: int) -> int:
        together.wait()
        if number % 2:
            return transport.send(GET).code
        stream = transport.stream(GET)
        stream.release()
        return stream.code

    with ThreadPoolExecutor(12) as pool:
        assert set(pool.map(ask, range(12))) == {200}


def test_a_line_without_an_end_is_not_kept_for_ever(server: ThreadingHTTPServer) -> None:
    """A container that writes without a line break had the controller keep all of it in memory."""

    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        with contextlib.suppress(OSError):
            while True:
                handler.wfile.write(b"x" * 65_536)

    server.RequestHandlerClass.do_GET = endless  # type: ignore[attr-defined] # of this server alone
    stream = Transport(kubeconfig(server)).stream(replace(GET, longest_line=1 << 20))
    with contextlib.closing(SimpleNamespace(close=stream.release)), pytest.raises(RefusedError, match="a line of more"):
        list(stream.lines)


def test_a_stream_that_is_ended_takes_nobody_along(server: ThreadingHTTPServer) -> None:
    """Its connection had gone back to the others when somebody ended it, and was that of another request by then."""
    server.RequestHandlerClass.protocol_version = "HTTP/1.1"  # type: ignore[attr-defined] # connections are kept
    asked: list[str] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.headers.get("Connection", ""))
        handler.send_response(200)
        handler.send_header("Content-Length", "2")
        handler.end_headers()
        handler.wfile.write(b"a\n")

    server.RequestHandlerClass.do_GET = answer  # type: ignore[attr-defined] # of this server alone
    transport = Transport(kubeconfig(server))
    stream = transport.stream(GET)
    assert list(stream.lines) == [b"a"]
    assert transport.send(GET).code == 200
    stream.close()
    assert transport.send(GET).code == 200
    stream.release()
    stream.close()
    assert asked == ["close", "", ""]


def test_nothing_more_is_asked_on_the_connection_of_a_stream(server: ThreadingHTTPServer) -> None:
    """A server that does not say that it will end the connection ends it all the same, in the next request at times."""
    server.RequestHandlerClass.protocol_version = "HTTP/1.1"  # type: ignore[attr-defined] # connections are kept
    peers: list[object] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        peers.append(handler.client_address)
        handler.close_connection = False  # as one that has not looked yet
        handler.send_response(200)
        handler.send_header("Content-Length", "2")
        handler.end_headers()
        handler.wfile.write(b"a\n")

    server.RequestHandlerClass.do_GET = answer  # type: ignore[attr-defined] # of this server alone
    transport = Transport(kubeconfig(server))
    for _ in range(2):
        stream = transport.stream(GET)
        assert list(stream.lines) == [b"a"]
        stream.release()
    assert [transport.send(GET).code for _ in range(2)] == [200, 200]
    assert peers[2] == peers[3], "others share theirs"
    assert len(set(peers)) == 3


def test_a_stream_is_ended_while_another_thread_reads_it(server: ThreadingHTTPServer) -> None:
    server.RequestHandlerClass.protocol_version = "HTTP/1.1"  # type: ignore[attr-defined] # which has chunks
    is_over = threading.Event()

    def lines(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(b"2\r\na\n\r\n")
        is_over.wait(60)

    server.RequestHandlerClass.do_GET = lines  # type: ignore[attr-defined] # of this server alone
    stream = Transport(kubeconfig(server)).stream(GET)
    found = iter(stream.lines)
    assert next(found) == b"a"
    closer = threading.Timer(0.05, stream.close)
    closer.start()
    with pytest.raises(UnreachableError):
        next(found)
    closer.join()
    stream.release()
    is_over.set()


def test_a_token_that_never_worked_is_not_asked_for_twice(server: ThreadingHTTPServer) -> None:
    server.RequestHandlerClass.accepted = frozenset()  # type: ignore[attr-defined] # it is an Echo

    assert Transport(kubeconfig(server, token=SECRET)).send(GET).code == 401


def test_a_plugin_gives_the_token(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": SECRET},
    }
    code = f"print({json.dumps(credential)!r})"

    assert echo(Transport(kubeconfig(server, exec=plugin(tmp_path, code))))["authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        pytest.param("raise SystemExit('log in first')", "exec: process returned 1. log in first", id="that fails"),
        pytest.param("print('hello')", "exec: failed to decode process output", id="that talks nonsense"),
    ],
)
def test_a_plugin_is_quoted(server: ThreadingHTTPServer, tmp_path: Path, code: str, reason: str) -> None:
    with pytest.raises(KubeconfigError) as raised:
        Transport(kubeconfig(server, exec=plugin(tmp_path, code)))

    assert raised.value.message.startswith(
        f"credentials of cluster x (http://127.0.0.1:{server.server_port}): {reason}"
    )


def test_a_plugin_that_is_not_there_is_named(server: ThreadingHTTPServer) -> None:
    missing = {"apiVersion": "client.authentication.k8s.io/v1", "command": "grapnel-no-such-plugin"}

    with pytest.raises(KubeconfigError, match="No such file or directory: 'grapnel-no-such-plugin'"):
        Transport(kubeconfig(server, exec=missing))


@pytest.mark.parametrize("key", ["tokenFile", "client-certificate"])
def test_a_file_that_is_not_there_is_named(key: str) -> None:
    with pytest.raises(KubeconfigError, match="/nowhere/file"):
        Transport(kubeconfig("https://127.0.0.1:1", **{key: "/nowhere/file"}))


@pytest.mark.parametrize(
    "user",
    [
        pytest.param({"client-certificate-data": f"%{SECRET}"}, id="data that is not base64"),
        pytest.param({"token": f"{SECRET}\nX: y"}, id="a token with a line break"),
        pytest.param({"token": f"{SECRET}\N{SNOWMAN}"}, id="a token beyond latin-1"),
        pytest.param({"exec": SECRET}, id="a plugin that is a word"),
        pytest.param({"client-certificate-data": "bm8=", "client-key-data": "bm8="}, id="an invalid certificate"),
    ],
)
def test_credentials_of_no_use_are_an_error_that_does_not_show_them(user: dict[str, Any]) -> None:
    with pytest.raises(ClusterError) as raised:
        Transport(kubeconfig("https://127.0.0.1:1", **user)).send(GET)

    assert SECRET not in raised.value.message + raised.value.hint


def test_nobody_listens() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    with pytest.raises(UnreachableError) as raised:
        Transport(kubeconfig(f"https://127.0.0.1:{port}")).send(GET)

    assert raised.value.message == f"cluster x (https://127.0.0.1:{port}) does not answer: connection refused"
    assert "kubectl version" in raised.value.hint


@pytest.mark.slow
def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(UnreachableError, match=r"does not answer: .*name"):
        Transport(kubeconfig("https://no-such-host.invalid:6443")).send(GET)


def _hang_up(listener: socket.socket) -> None:
    connection, _address = listener.accept()
    connection.recv(1000)  # reading first makes it an end, not a reset
    connection.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("behaviour", "reason"), [("silent", "no answer in time"), ("rude", "the connection was closed")]
)
def test_somebody_listens_who_is(behaviour: str, reason: str) -> None:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        if behaviour == "rude":
            thread = threading.Thread(target=_hang_up, args=(listener,))
            thread.start()
            stack.callback(thread.join)
        transport = Transport(kubeconfig(f"http://127.0.0.1:{listener.getsockname()[1]}"))

        with pytest.raises(UnreachableError, match=reason):
            transport.send(Request(method="GET", path="/", timeout_s=0.5))


@pytest.mark.slow
def test_something_answers_that_is_not_tls(server: ThreadingHTTPServer) -> None:
    with pytest.raises(UnreachableError, match="does not answer: "):
        Transport(kubeconfig(f"https://127.0.0.1:{server.server_port}")).send(GET)


def test_a_server_whose_certificate_has_expired_is_not_believed_and_that_is_said(
    server: ThreadingHTTPServer, tmp_path: Path
) -> None:
    certificate, key = expired_certificate(tmp_path, "/CN=127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    config = kubeconfig(f"https://127.0.0.1:{server.server_port}")
    config.document["clusters"][0]["cluster"]["certificate-authority"] = str(certificate)

    with pytest.raises(UnreachableError, match="its certificate is not trusted: certificate has expired"):
        Transport(config).send(GET)


def test_a_connection_that_is_kept_has_the_next_deadline(server: ThreadingHTTPServer) -> None:
    transport = Transport(kubeconfig(server))
    for _ in range(3):
        assert transport.send(replace(GET, timeout_s=30.0)).code == 200
