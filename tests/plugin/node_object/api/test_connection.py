from __future__ import annotations

import base64
import contextlib
import socket
import ssl
import threading
from typing import TYPE_CHECKING, Any

import pytest

from plugin.base.errors import ClusterError
from plugin.publication.node_object.api.connection import Connection
from plugin.publication.node_object.api.credentials import Credentials
from plugin.publication.node_object.api.messages import Limits
from plugin.publication.node_object.api.wire import Wire
from plugin.publication.node_object.requests import read_node
from tests import peers
from tests.plugin.node_object.api_server import NODE, TOKEN, ApiServer, Failure, write_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.cluster.certificates import Certificates

SHORT = Limits(connect_s=0.3, read_s=0.3, call_s=0.6)


def connect(kubeconfig: Path, limits: Limits | None = None, **environment: str) -> Connection:
    return Connection(Credentials(str(kubeconfig), environment).current(), environment, limits)


def status(connection: Connection) -> int:
    answer = connection.call(read_node(NODE))
    connection.close()
    return answer.status


def data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


@pytest.mark.slow
def test_a_certificate_in_files_and_one_in_the_kubeconfig_are_known(server: ApiServer, tmp_path: Path) -> None:
    made = server.certificates
    assert status(connect(write_kubeconfig(tmp_path / "files", server))) == 200
    user = {
        "client-certificate-data": data(made.certificate("admin")),
        "client-key-data": data(made.key("admin")),
        "client-key": "/nowhere",  # what is in the file itself comes first
    }
    cluster = {"certificate-authority-data": data(made.certificate("ca"))}
    assert status(connect(write_kubeconfig(tmp_path / "data", server, user, **cluster))) == 200


@pytest.mark.slow
def test_tokens_are_known_and_a_file_comes_before_one_in_place(server: ApiServer, tmp_path: Path) -> None:
    server.state.tokens.add(TOKEN)
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    assert status(connect(write_kubeconfig(tmp_path / "a", server, {"token": TOKEN}))) == 200
    assert status(connect(write_kubeconfig(tmp_path / "b", server, {"tokenFile": "token", "token": "x"}))) == 200
    assert status(connect(write_kubeconfig(tmp_path / "c", server, {"token": "another"}))) == 401


def test_several_calls_share_one_connection(server: ApiServer, tmp_path: Path) -> None:
    connection = connect(write_kubeconfig(tmp_path / "config", server))
    for _ in range(3):
        connection.call(read_node(NODE))
    first = connection._http.sock
    connection.call(read_node(NODE))
    assert connection._http.sock is first
    connection.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failure", "words"),
    [
        pytest.param(Failure(until=threading.Event()), "no answer in time", id="it says nothing"),
        pytest.param(Failure(bytes_s=0.05, body=b"x" * 99), "within 0.6 s", id="it says it byte by byte"),
        pytest.param(Failure(200, body=b"[" + b"1," * 2_200_000), "larger than 4194304", id="it says too much"),
        pytest.param(Failure(raw=b"SSH-2.0-OpenSSH_9.2\r\n"), "not http", id="it is something else"),
        pytest.param(Failure(raw=b""), "the connection was closed", id="it hangs up"),
        pytest.param(Failure(raw=b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200), "not http", id="headers without end"),
    ],
)
def test_what_is_no_answer_is_an_error_in_time(server: ApiServer, tmp_path: Path, failure: Failure, words: str) -> None:
    server.state.failures.append(failure)
    connection = connect(write_kubeconfig(tmp_path / "config", server), SHORT)
    with pytest.raises(ClusterError, match=words) as raised:
        connection.call(read_node(NODE))
    if failure.until is not None:
        failure.until.set()
    assert f"127.0.0.1:{server.port}" in raised.value.message
    assert status(connection) == 200, "the next call has a connection of its own"


def test_nobody_listening_is_an_error(server: ApiServer, tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "config", server, server="https://127.0.0.1:1")
    with pytest.raises(ClusterError, match=r"127\.0\.0\.1:1: connection refused"):
        connect(kubeconfig).call(read_node(NODE))


@pytest.mark.slow
def test_a_server_that_accepts_and_never_shakes_hands_costs_its_time_alone(server: ApiServer, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"https://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ClusterError, match="no answer in time"):
            connect(write_kubeconfig(tmp_path / "config", server, server=address), SHORT).call(read_node(NODE))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        pytest.param({"tls-server-name": "other.example"}, "certificate refused: hostname mismatch", id="another name"),
        pytest.param({"certificate-authority": "STRANGER"}, "certificate refused: ", id="another authority"),
    ],
)
def test_a_server_that_is_another_is_told_nothing(
    server: ApiServer, tmp_path: Path, cluster: dict[str, str], words: str
) -> None:
    from lab.cluster.certificates import Certificates  # noqa: PLC0415 - a second authority, of this test alone

    stranger = Certificates(tmp_path / "stranger")
    stranger.prepare("127.0.0.1")
    named = {key: str(stranger.certificate("ca")) if value == "STRANGER" else value for key, value in cluster.items()}
    with pytest.raises(ClusterError, match=words) as raised:
        connect(write_kubeconfig(tmp_path / "config", server, **named)).call(read_node(NODE))
    assert "clock" in raised.value.hint
    assert server.state.calls == []


def test_the_name_of_the_certificate_may_be_given(server: ApiServer, tmp_path: Path) -> None:
    named = write_kubeconfig(tmp_path / "config", server, **{"tls-server-name": "kubernetes.default.svc"})
    assert status(connect(named)) == 200


class Ipv6Server(ApiServer):
    address_family = socket.AF_INET6

    def server_bind(self) -> None:
        self.server_address = ("::1", 0)
        super().server_bind()


def test_a_server_with_an_address_of_ipv6(certificates: Certificates, tmp_path: Path) -> None:
    with Ipv6Server(certificates) as server:
        address = {"server": f"https://[::1]:{server.port}", "tls-server-name": "localhost"}
        assert status(connect(write_kubeconfig(tmp_path / "config", server, **address))) == 200
        other = {"server": f"https://[::1]:{server.port}"}
        with pytest.raises(ClusterError, match=rf"\[::1\]:{server.port}: certificate refused"):
            connect(write_kubeconfig(tmp_path / "other", server, **other)).call(read_node(NODE))


class ConnectProxy:
    """Connects to whatever it is asked for, or refuses; keeps what it was asked."""

    def __init__(self, *, refuses: bool = False) -> None:
        self._refuses = refuses
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.asked: list[str] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(1024)
            self.asked.append(head.decode())
            if self._refuses:
                client.sendall(b"HTTP/1.1 407 no\r\n\r\n")
                client.close()
                continue
            host, _, port = head.split()[1].decode().rpartition(":")
            there = socket.create_connection((host, int(port)))
            client.sendall(b"HTTP/1.1 200 Connection established\r\nX: y\r\n\r\n")
            for pair in ((client, there), (there, client)):
                threading.Thread(target=_pump, args=pair, daemon=True).start()

    def close(self) -> None:
        self._listener.close()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while content := source.recv(65536):
            sink.sendall(content)
    except OSError:
        pass
    sink.close()


@pytest.fixture
def proxy() -> Iterator[ConnectProxy]:
    made = ConnectProxy()
    yield made
    made.close()


def test_a_proxy_of_the_kubeconfig_is_asked_to_connect(server: ApiServer, tmp_path: Path, proxy: ConnectProxy) -> None:
    url = {"proxy-url": f"http://ada:secret%21@127.0.0.1:{proxy.port}"}
    assert status(connect(write_kubeconfig(tmp_path / "config", server, **url))) == 200
    assert proxy.asked[0].startswith(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\n")
    assert base64.b64encode(b"ada:secret!").decode() in proxy.asked[0]


def test_a_proxy_that_refuses_is_named(server: ApiServer, tmp_path: Path) -> None:
    refusing = ConnectProxy(refuses=True)
    url: dict[str, Any] = {"proxy-url": f"http://127.0.0.1:{refusing.port}"}
    with pytest.raises(ClusterError, match="the proxy does not connect"):
        connect(write_kubeconfig(tmp_path / "config", server, **url)).call(read_node(NODE))
    refusing.close()


def test_the_environments_proxy_is_not_for_this_machine(server: ApiServer, tmp_path: Path, proxy: ConnectProxy) -> None:
    environment = {"HTTPS_PROXY": f"http://127.0.0.1:{proxy.port}"}
    assert status(connect(write_kubeconfig(tmp_path / "config", server), **environment)) == 200
    assert proxy.asked == []


@contextlib.contextmanager
def endless(server: ApiServer, folder: Path, behave: peers.Behave) -> Iterator[Connection]:
    """Yield a connection to an API server that deals with it like this."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificates.certificate("apiserver"), server.certificates.key("apiserver"))
    with peers.peer(behave, context) as port:
        yield connect(write_kubeconfig(folder / "config", server, server=f"https://127.0.0.1:{port}"), SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("behave", peers.ENDLESS.values(), ids=peers.ENDLESS)
def test_a_call_ends_whatever_drips(server: ApiServer, tmp_path: Path, behave: peers.Behave) -> None:
    with endless(server, tmp_path, behave) as connection, pytest.raises(ClusterError, match=r"within 0\.6 s"):
        connection.call(read_node(NODE))


@pytest.mark.slow
@pytest.mark.parametrize("way", ["status line", "headers", "body", "body until the end", "size of a chunk", "chunks"])
def test_a_watch_ends_when_a_line_does_not(server: ApiServer, tmp_path: Path, way: str) -> None:
    """A byte now and then reset the only clock: what was known of the cluster stood still, and counted as fresh."""
    heard: list[bytes] = []
    with endless(server, tmp_path, peers.ENDLESS[way]) as connection, pytest.raises(ClusterError):
        connection.follow(read_node(NODE), heard.append)
    assert b"".join(heard) == b"", "a part of a line is none"


@pytest.mark.slow
def test_a_watch_waits_for_who_hears_it(server: ApiServer, tmp_path: Path) -> None:
    heard: list[bytes] = []

    def hear(line: bytes) -> None:
        heard.append(line)
        threading.Event().wait(0.4)

    lines = b"".join(b"2\r\n%d\n\r\n" % number for number in range(4))
    answer = peers.HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + lines + b"0\r\n\r\n"
    with endless(server, tmp_path, peers.saying(answer)) as connection:
        assert connection.follow(read_node(NODE), hear).status == 200
    assert heard == [b"", b"0\n", b"1\n", b"2\n", b"3\n"]


def test_a_wire_that_is_cut_ends_what_is_taken_later() -> None:
    """While a name was looked up there was nothing to cut yet, and what came of it had no limit any more."""
    here, there = socket.socketpair()
    wire = Wire()
    with here, there:
        wire.cut()
        wire.take(here)
        assert there.recv(1) == b""
        wire.release()
