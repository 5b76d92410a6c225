"""Who stands between a run and its receiver, or is one, learns nothing else, and sends no message elsewhere."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import threading
from typing import TYPE_CHECKING

import pytest

from provision.declaration.spec.model import News, Notify
from provision.report.notify.news import Data, Message, encode
from provision.report.notify.receivers import ReceiverError, read_receivers
from provision.report.notify.webhook import PostError, Receiver, Webhook, post, sign
from tests import peers
from tests.provision.notify.receiver import OK, Server, status

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from pathlib import Path

KEY = b"k" * 32
SECRET = f"whsec_{base64.b64encode(KEY).decode()}"
BODY = b'{"text":"what only the receiver may read"}'
SIGNED = {"webhook-signature": "v1,proof"}
PATH = "/T0/B0/whole-secret"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate for receiver.example, which is its own authority."""
    return peers.certificate(tmp_path_factory.mktemp("tls"), "receiver.example", "DNS:receiver.example")


def serving(certificate: tuple[str, str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


class Tap:
    """A listener that keeps all that comes, and answers as it is told."""

    def __init__(self, behave: Callable[[socket.socket], None]) -> None:
        self.came = b""
        self._behave = behave
        self._done = threading.Event()

    def __call__(self, client: socket.socket, closed: threading.Event) -> None:
        try:
            self._behave(client)
            client.settimeout(2)
            while data := client.recv(65536):
                self.came += data
        except OSError:
            pass
        finally:
            self._done.set()

    def all(self) -> bytes:
        assert self._done.wait(5)
        return self.came


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    for name in ("no_proxy", "NO_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return lambda port: monkeypatch.setenv("https_proxy", f"http://me:proxy-secret@127.0.0.1:{port}")


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 301 x\r\nLocation: http://127.0.0.1/\r\n\r\n", b"SSH-2.0-x\r\n"],
    ids=["silence", "plain HTTP", "a redirect to plain HTTP", "another protocol"],
)
def test_who_speaks_no_tls_is_told_nothing(answer: bytes) -> None:
    tap = Tap(lambda client: client.sendall(answer))
    with peers.peer(tap) as port:
        with pytest.raises(PostError) as failed:
            post(f"https://127.0.0.1:{port}{PATH}", BODY, SIGNED, deadline_s=1)
        came = tap.all()

    assert not [each for each in (BODY, b"proof", b"secret") if each in came]
    assert "secret" not in str(failed.value)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_old_tls_is_not_spoken(certificate: tuple[str, str]) -> None:
    trusting = ssl.create_default_context(cafile=certificate[0])
    trusting.check_hostname = False
    old = serving(certificate)
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    with Server([OK], tls=old) as server:
        with pytest.raises(PostError):
            post(server.url, BODY, SIGNED, tls=trusting, deadline_s=2)
        assert server.got.empty()


def test_a_proxy_that_answers_in_the_receivers_place_is_told_its_host_alone(
    certificate: tuple[str, str], proxied: Callable[[int], None]
) -> None:
    """It agrees to connect, and shows a certificate of its own, of a name that the receiver has not."""
    context = serving(certificate)

    def behave(client: socket.socket, closed: threading.Event) -> None:  # noqa: ARG001 - of `peers`
        nonlocal head
        while b"\r\n\r\n" not in head:
            head += client.recv(65536)
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            inside = context.wrap_socket(client, server_side=True)
            head += inside.recv(65536)
        except OSError:
            pass

    head = b""
    trusting = ssl.create_default_context(cafile=certificate[0])
    with peers.peer(behave) as port:
        proxied(port)
        with pytest.raises(PostError, match="its certificate is not trusted"):
            post(f"https://other.example{PATH}", BODY, SIGNED, tls=trusting)

    assert head.startswith(b"CONNECT other.example:443 ")
    assert not [each for each in (BODY, b"proof", b"whole-secret") if each in head]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 302 x\r\nLocation: https://evil.example/\r\n\r\n",
        b"HTTP/1.1 407 whole-secret\r\nProxy-Authenticate: Basic\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.0 403 \x1b[2J\r\n\r\n",
    ],
    ids=["redirect", "credentials", "a body", "escape sequences"],
)
# Before 3.11.5, `HTTPConnection._tunnel` closes the socket to a proxy that refuses, and not what reads its answer.
@pytest.mark.filterwarnings(r"ignore:unclosed <socket\.socket \[closed\]:ResourceWarning")
def test_what_a_proxy_answers_leads_nowhere_and_is_not_repeated(answer: bytes, proxied: Callable[[int], None]) -> None:
    tap = Tap(lambda client: client.sendall(answer))
    with peers.peer(tap) as port:
        proxied(port)
        with pytest.raises(PostError) as failed:
            post(f"https://receiver.example{PATH}", BODY, SIGNED, deadline_s=2)
        came, told = tap.all(), str(failed.value)
        del failed  # with all that its traceback holds, while the warning is left out

    assert BODY not in came
    assert told.isprintable()
    assert "secret" not in told


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_no_redirect_takes_a_message_elsewhere(code: int) -> None:
    with Server([OK]) as other:
        with Server([status(code, f"Location: {other.url}")]) as server:
            assert post(server.url, BODY, SIGNED) == code
        assert other.got.empty()


def test_interim_answers_without_end_are_given_up() -> None:
    def flood(client: socket.socket, closed: threading.Event) -> None:
        peers.request_of(client)
        client.settimeout(1)
        while not closed.is_set():
            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)

    with peers.peer(flood) as port, pytest.raises(PostError, match="no answer in time"):
        post(f"http://127.0.0.1:{port}/", BODY, SIGNED, deadline_s=0.5)


@pytest.mark.parametrize("changed", ["id", "time", "body", "key"])
def test_a_signature_is_good_for_nothing_else(changed: str) -> None:
    given = {"key": KEY, "ident": "msg_1", "timestamp": 1, "body": BODY}
    other = {
        "id": {"ident": "msg_2"},
        "time": {"timestamp": 2},
        "body": {"body": BODY + b" "},
        "key": {"key": b"x" * 32},
    }

    assert sign(**given) != sign(**{**given, **other[changed]})  # type: ignore[arg-type]  # arguments by name


def test_a_text_of_a_node_is_neither_a_header_nor_a_key() -> None:
    said = 'x\r\nwebhook-id: msg_forged\r\n\r\n","type":"node.done","data":{"node":"n2"}}'
    message = Message(
        type="node.failed", timestamp="", text=said, data=Data(place="c", rollout="r", node=said, reason=said)
    )
    with Server([OK]) as server:
        told = Webhook(Receiver(url=server.url, key=KEY, types=frozenset({"node.failed"})))
        told.tell(message)
        got = server.got.get(timeout=30)
        told.hurry()
        assert told.close(30) == ""

    assert got.body == encode(message)
    assert json.loads(got.body)["type"] == "node.failed"
    assert got.headers["webhook-id"] != "msg_forged"
    signed = f"{got.headers['webhook-id']}.{got.headers['webhook-timestamp']}.".encode() + got.body
    expected = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
    assert got.headers["webhook-signature"] == f"v1,{expected}"


def test_what_is_shown_of_a_receiver_is_no_secret() -> None:
    """Its key and its address were in whatever showed it, such as a failed comparison or a log of values."""
    receiver = Receiver(url=f"https://chat.example{PATH}", key=KEY, types=frozenset({"node.done"}))

    assert "secret" not in repr(receiver)
    assert "kkkk" not in repr(receiver)


@pytest.mark.parametrize(
    "url",
    [
        "https://a.example/\r\nX-Forged: secret",
        "https://a.example/ HTTP/1.1\r\nHost: secret.example",
        "https://a.example\t/secret",
        "https://a.example#@secret.example/",
        "https://a.example\\@secret.example/",
        "https://a.exämple/secret",
        "http://127.0.0.1.secret.example/",
        "http://localhost@secret.example/",
        "http://0x7f000001/secret",
        "http://2130706433/secret",
        "HTTPS://a.example/secret",
        "ftp://a.example/secret",
        "//a.example/secret",
        "https:///secret",
        "https://-oProxyCommand=secret/",
    ],
)
def test_a_url_that_could_mean_another_host_is_refused_unseen(url: str, tmp_path: Path) -> None:
    (tmp_path / "url").write_text(url)
    (tmp_path / "key").write_text(SECRET)

    with pytest.raises(ReceiverError) as refused:
        read_receivers(
            [Notify(url_file=str(tmp_path / "url"), secret_file=str(tmp_path / "key"), events=(News.NODE_DONE,))]
        )

    assert "secret" not in f"{refused.value.message}{refused.value.hint}".replace(str(tmp_path), "")
