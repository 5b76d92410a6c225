"""Receivers get what they asked for, signed and in order; what they answer, or do not, keeps nobody waiting."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import ssl
import threading
import time
from typing import TYPE_CHECKING

import pytest

from provision.declaration.spec.model import News, Notify
from provision.report.notify.news import Data, Message
from provision.report.notify.receivers import ReceiverError, read_receivers
from provision.report.notify.webhook import (
    MAX_WAITING,
    PostError,
    Receiver,
    Webhook,
    parse_secret,
    place_of,
    post,
    sign,
)
from tests import peers
from tests.provision.notify.receiver import OK, Got, Server, status

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KEY = b"k" * 32
SECRET = f"whsec_{base64.b64encode(KEY).decode()}"
EVERYTHING = frozenset(news.value for news in News)
MESSAGE = Message(
    type="node.failed",
    timestamp="2026-05-04T12:00:00.000000Z",
    text="cluster test: n1 has failed in swap: apt: broken",
    data=Data(place="cluster test", rollout="rollout-1", node="n1", phase="swap", reason="apt: broken"),
)
SOON = (0.01, 0.01, 0.01)


def webhook(url: str, *, pauses_s: tuple[float, ...] = SOON, deadline_s: float = 30.0) -> Webhook:
    def send(url: str, body: bytes, headers: Mapping[str, str]) -> int:
        return post(url, body, headers, deadline_s=deadline_s)

    return Webhook(Receiver(url=url, key=KEY, types=EVERYTHING), send=send, pauses_s=pauses_s)


def closed(found: Webhook, timeout_s: float = 30.0) -> str:
    found.hurry()
    return found.close(timeout_s)


def is_signed(got: Got) -> bool:
    signed = f"{got.headers['webhook-id']}.{got.headers['webhook-timestamp']}.".encode() + got.body
    expected = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
    return got.headers["webhook-signature"] == f"v1,{expected}"


def test_the_signature_is_that_of_the_published_vector() -> None:
    """Source: the libraries of github.com/standard-webhooks, and of Svix, from which it came."""
    key = parse_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")

    assert sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}') == (
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


@pytest.mark.parametrize(
    "text", ["", "whsec_", "whsec_kurz", "whsec_" + "A" * 200, "whsec_ümlaut", "not base64 at all!"]
)
def test_a_key_that_proves_nothing_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="it ") as raised:
        parse_secret(text)
    assert not text or text not in str(raised.value)


def test_a_message_arrives_signed() -> None:
    with Server([OK]) as server:
        told = webhook(server.url)
        told.tell(MESSAGE)
        got = server.got.get(timeout=30)
        assert closed(told) == ""

    assert got.target == "/hook/secret-path"
    assert got.headers["content-type"] == "application/json"
    assert is_signed(got)
    assert json.loads(got.body)["data"]["node"] == "n1"
    assert abs(int(got.headers["webhook-timestamp"]) - time.time()) < 300


def test_a_receiver_that_fails_is_tried_again_with_the_same_id() -> None:
    with Server([status(500), status(429), OK]) as server:
        told = webhook(server.url)
        told.tell(MESSAGE)
        got = [server.got.get(timeout=30) for _ in range(3)]
        assert closed(told) == ""

    assert len({each.headers["webhook-id"] for each in got}) == 1
    assert all(map(is_signed, got))


def test_messages_come_in_their_order() -> None:
    texts = [f"message {number}" for number in range(20)]
    with Server([status(503), OK]) as server:
        told = webhook(server.url)
        for text in texts:
            told.tell(Message(type="node.done", timestamp="", text=text, data=MESSAGE.data))
        got = [json.loads(server.got.get(timeout=30).body)["text"] for _ in range(21)]
        assert closed(told) == ""

    assert got == [texts[0], *texts]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (status(500), "it answers 500"),
        (status(302, "Location: https://evil.example/"), "it answers 302, and redirects are not followed"),
        (b"", "the connection was closed|does not answer as|RemoteDisconnected"),
        (b"SSH-2.0-OpenSSH\r\n", "it does not answer as an HTTP server does"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 300, "it does not answer as an HTTP server does"),
        (b"HTTP/1.1 999999 x\r\n\r\n", "it does not answer as an HTTP server does"),
    ],
    ids=["error", "redirect", "nothing", "another protocol", "endless headers", "no status"],
)
def test_what_a_receiver_answers_wrongly_is_told_at_the_end(answer: bytes, why: str) -> None:
    with Server([answer]) as server:
        told = webhook(server.url)
        told.tell(MESSAGE)
        for _ in range(len(SOON) + 1):
            server.got.get(timeout=30)
        untold = closed(told)

    place, _, reason = untold.partition(": 1 of 1 notifications were not delivered: ")
    assert place == f"webhook http://127.0.0.1:{server.port}", "its path may be a secret"
    assert any(part in reason for part in why.split("|")), reason


def test_a_receiver_that_wants_nothing_more_is_not_asked_again() -> None:
    with Server([status(410)]) as server:
        told = webhook(server.url)
        for _ in range(3):
            told.tell(MESSAGE)
        server.got.get(timeout=30)
        assert "3 of 3 notifications were not delivered: it answers 410" in closed(told)
        assert server.got.empty()


@pytest.mark.parametrize("way", ["hang", "drip"])
def test_a_receiver_that_never_ends_its_answer_is_given_up(way: str) -> None:
    with Server([]) as server:
        server.answers = [getattr(server, way)]
        with pytest.raises(PostError):
            post(server.url, b"{}", {}, deadline_s=0.3)


@pytest.mark.parametrize("answered", [b"HTTP/1.1 200 ", b"HTTP/1.1 200 OK\r\nX: "], ids=["status", "header"])
def test_a_proxy_that_never_ends_its_answer_is_given_up(answered: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock began when the proxy had answered: until then a byte now and then held the webhook for ever."""
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with peers.peer(peers.dripping(answered)) as port:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        with pytest.raises(PostError, match="no answer in time"):
            post("https://receiver.example/", b"{}", {}, deadline_s=0.3)


def test_a_long_answer_is_not_read() -> None:
    with Server([b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n" + b"x" * 1000]) as server:
        assert post(server.url, b"{}", {}) == 200


def test_nobody_there_is_told() -> None:
    with Server([OK]) as server:
        url = server.url
    told = webhook(url, pauses_s=())
    told.tell(MESSAGE)

    assert closed(told).endswith("1 of 1 notifications were not delivered: connection refused")


def test_telling_never_blocks_and_what_is_too_much_is_counted() -> None:
    release = threading.Event()

    def stuck(_url: str, _body: bytes, _headers: Mapping[str, str]) -> int:
        release.wait(60)
        return 204

    told = Webhook(Receiver(url="https://example.com/", key=KEY, types=EVERYTHING), send=stuck)
    for _ in range(MAX_WAITING + 50):
        told.tell(MESSAGE)
    release.set()
    untold = closed(told)

    assert untold.endswith(
        f"of {MAX_WAITING + 50} notifications were not delivered: more than {MAX_WAITING} were waiting"
    )
    assert 49 <= int(untold.split(": ")[1].split(" of ")[0]) <= 50


def test_a_run_that_ends_does_not_wait_for_the_next_attempt() -> None:
    with Server([status(500), OK]) as server:
        told = webhook(server.url, pauses_s=(600.0,))
        told.tell(MESSAGE)
        server.got.get(timeout=30)
        assert closed(told) == "", "the second attempt is made at once"


def test_only_what_was_asked_for_is_told() -> None:
    with Server([OK]) as server:
        receiver = Receiver(url=server.url, key=KEY, types=frozenset({"node.done"}))
        told = Webhook(receiver)
        told.tell(MESSAGE)
        assert closed(told) == ""
        assert server.got.empty()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return peers.certificate(tmp_path_factory.mktemp("tls"))


def test_tls_is_verified(certificate: tuple[str, str]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with Server([OK], tls=context) as server:
        with pytest.raises(PostError, match="its certificate is not trusted: self-signed certificate"):
            post(server.url, b"{}", {})
        assert server.got.empty()
        trusting = ssl.create_default_context(cafile=certificate[0])
        assert post(server.url, b"{}", {}, tls=trusting) == 204
        with pytest.raises(PostError, match="its certificate is not trusted: "):
            post(server.url.replace("127.0.0.1", "localhost"), b"{}", {}, tls=trusting)


@pytest.mark.parametrize(
    "url",
    [
        "https://10.0.0.1:8443/x",
        "https://[2001:db8::1]:8443/x",
        "https://[::ffff:10.0.0.1]/x",
        "https://chat.example?key=secret",
        "https://chat_bot.example./a?b#c",
        "http://[::1]:9000/x",
    ],
)
def test_urls_of_every_kind_of_host_are_taken(url: str, tmp_path: Path) -> None:
    (tmp_path / "url").write_text(url)
    (tmp_path / "secret").write_text(SECRET)

    (found,) = read_receivers([Notify(url_file=str(tmp_path / "url"), secret_file=str(tmp_path / "secret"))])

    assert found.url == url
    assert place_of(url).startswith(("https://", "http://"))


def test_a_key_or_url_that_nobody_ever_writes_holds_no_run(tmp_path: Path) -> None:
    """A FIFO in the place of either was opened, and waited for."""
    os.mkfifo(tmp_path / "secret")

    with pytest.raises(ReceiverError, match="not a regular file"):
        read_receivers([Notify(url="https://alerts.example/", secret_file=str(tmp_path / "secret"))])


def test_a_declared_address_that_is_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)

    with pytest.raises(ReceiverError, match=r"https://\[::::\]/x is not a URL that can be told anything"):
        read_receivers([Notify(url="https://[::::]/x", secret_file=str(tmp_path / "secret"))])


def test_what_is_shown_of_a_url_is_no_secret() -> None:
    assert place_of("https://user:pass@chat.example:8443/T0/B0/secret?x=y") == "https://chat.example:8443"


def test_receivers_are_read_with_their_files(tmp_path: Path) -> None:
    secret, url = tmp_path / "secret", tmp_path / "url"
    secret.write_text(SECRET + "\n")
    url.write_text("https://chat.example/T0/B0/secret\n")
    one = Notify(url_file=str(url), secret_file=str(secret), events=(News.NODE_DONE,))
    other = Notify(url="https://alerts.example/", secret_file=str(secret))

    assert read_receivers([one, other, one]) == (
        Receiver(url="https://chat.example/T0/B0/secret", key=KEY, types=frozenset({"node.done"})),
        Receiver(url="https://alerts.example/", key=KEY, types=frozenset(each.value for each in other.events)),
    )


@pytest.mark.parametrize(
    ("secret", "url", "message"),
    [
        (None, "https://a.example/", "No such file"),
        ("whsec_short", "https://a.example/", "it "),
        (SECRET, None, "No such file"),
        (SECRET, "http://elsewhere.example/secret", "is not a URL that can be told anything"),
        (SECRET, "https://a.example/ secret\n", "is not a URL that can be told anything"),
        (SECRET, "ü", "is no text"),
        (SECRET, "https://[a/secret", "is not a URL that can be told anything"),
        (SECRET, "https://[::::]/secret", "is not a URL that can be told anything"),
        (SECRET, "https://[::1]x/secret", "is not a URL that can be told anything"),
        (SECRET, "https://[fe80::1%25eth0]/secret", "is not a URL that can be told anything"),
        (SECRET, "https://a.example:99999/secret", "is not a URL that can be told anything"),
        (SECRET, "https://a.example:http/secret", "is not a URL that can be told anything"),
        (SECRET, "https://a.example\\secret", "is not a URL that can be told anything"),
        (SECRET, "https://a..example/secret", "is not a URL that can be told anything"),
        (SECRET, "https://a.example\x1b[2J/secret", "is not a URL that can be told anything"),
        (SECRET, f"https://{'a' * 64}.example/secret", "is not a URL that can be told anything"),
        (SECRET, "https://me:secret@a.example/", "is not a URL that can be told anything"),
        (SECRET, "https://a.example/secret\nhttps://b.example/", "is not a URL that can be told anything"),
        (SECRET, f"https://a.example/{'x' * 5000}", "larger than 4096 bytes"),
    ],
)
def test_a_receiver_that_could_not_be_told_is_an_error(
    secret: str | None, url: str | None, message: str, tmp_path: Path
) -> None:
    files = {"secret": secret, "url": url}
    for name, text in files.items():
        if text is not None:
            (tmp_path / name).write_text(text)

    with pytest.raises(ReceiverError, match=message) as raised:
        read_receivers([Notify(url_file=str(tmp_path / "url"), secret_file=str(tmp_path / "secret"))])
    assert not [text for text in files.values() if text and text in raised.value.message]
