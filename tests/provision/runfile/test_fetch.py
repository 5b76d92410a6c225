"""A runfile from a URL: taken only as the declared file, over https alone, and gone when it is not that."""

from __future__ import annotations

import functools
import hashlib
import io
import ssl
import urllib.error
import urllib.request
from email.message import Message
from typing import IO, TYPE_CHECKING

import pytest

from lab.runfile import SmallDriver
from provision.declaration.spec.model import Runfile
from provision.planning.supply.runfile.errors import RunfileError
from provision.planning.supply.runfile.fetch import HttpsOnly, download, open_url
from provision.planning.supply.runfile.store import RunfileStore
from tests import peers

if TYPE_CHECKING:
    import socket
    import threading
    from pathlib import Path

URL = "https://mirror.example.com/driver.run"
CONTENT = b"a driver"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


def answers(content: bytes) -> IO[bytes]:
    return io.BytesIO(content)


def test_the_declared_file_is_downloaded(tmp_path: Path) -> None:
    assert download(URL, DIGEST, tmp_path, lambda _: answers(CONTENT)).read_bytes() == CONTENT


@pytest.mark.parametrize("content", [b"", CONTENT[:-1], b"<html>log in first</html>"], ids=["nothing", "cut", "a page"])
def test_any_other_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(RunfileError, match=f"and driver.runfile.sha256 is {DIGEST}"):
        download(URL, DIGEST, tmp_path, lambda _: answers(content))


def test_one_without_end_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(RunfileError, match="is larger than 4 bytes"):
        download(URL, DIGEST, tmp_path, lambda _: answers(CONTENT), limit_bytes=4)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        pytest.param(
            urllib.error.URLError("Name or service not known"), "Name or service not known", id="no such host"
        ),
        pytest.param(urllib.error.HTTPError(URL, 404, "Not Found", Message(), None), "Not Found", id="no such file"),
        pytest.param(TimeoutError("timed out"), "timed out", id="a server that does not answer"),
    ],
)
def test_what_cannot_be_had_says_so(tmp_path: Path, error: Exception, said: str) -> None:
    def fails(_: str) -> IO[bytes]:
        raise error

    with pytest.raises(RunfileError, match=said) as caught:
        download(URL, DIGEST, tmp_path, fails)

    assert "https_proxy" in caught.value.hint


@pytest.mark.parametrize("way", ["headers", "body", "chunks", "size of a chunk"])
def test_a_server_that_sends_a_byte_now_and_then_is_given_up(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each silence was short enough: an apply, and whoever waited for its lock, was held for ever."""
    cert, key = peers.certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    monkeypatch.setenv("SSL_CERT_FILE", cert)
    folder = tmp_path / "kept"
    folder.mkdir()
    with (
        peers.peer(peers.ENDLESS[way], context) as port,
        pytest.raises(RunfileError, match="cannot be downloaded: no answer in time"),
    ):
        download(f"https://127.0.0.1:{port}/x.run", DIGEST, folder, functools.partial(open_url, whole_s=0.5))


def test_a_file_comes_over_https_and_a_redirection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cert, key = peers.certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    monkeypatch.setenv("SSL_CERT_FILE", cert)

    def behave(client: socket.socket, _closed: threading.Event) -> None:
        moved = b"HTTP/1.1 302 Found\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n"
        there = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(CONTENT), CONTENT)
        client.sendall(there if b" /there " in peers.request_of(client) else moved)

    with peers.peer(behave, context) as port:
        found = download(f"https://127.0.0.1:{port}/x.run", DIGEST, tmp_path, open_url)
    assert found.read_bytes() == CONTENT


@pytest.mark.parametrize("target", ["file:///etc/shadow", "http://mirror.example.com/x", "ftp://mirror.example.com/x"])
def test_a_redirection_to_anything_but_https_is_not_followed(target: str) -> None:
    handler = HttpsOnly()
    request = urllib.request.Request(URL)

    with pytest.raises(urllib.error.URLError, match="not https"):
        handler.redirect_request(request, io.BytesIO(), 302, "Found", Message(), target)  # type: ignore[arg-type] # headers

    assert handler.redirect_request(request, io.BytesIO(), 302, "Found", Message(), URL) is not None  # type: ignore[arg-type] # as above


def test_a_proxy_that_is_not_spoken_to_in_http_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was asked in the clear, with the password in https_proxy."""
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("https_proxy", "https://me:secret@127.0.0.1:1")

    with pytest.raises(RunfileError, match="https_proxy names no http proxy") as raised:
        download("https://elsewhere.example/x.run", DIGEST, tmp_path, open_url)
    assert "secret" not in str(raised.value)


def test_the_download_is_gone_once_it_is_converted(tmp_path: Path) -> None:
    content = SmallDriver("550.54.15").content()
    declared = Runfile(url=URL, sha256=hashlib.sha256(content).hexdigest())

    made = RunfileStore(tmp_path, lambda _: answers(content)).convert(declared)

    assert made.driver_version == "550.54.15"
    assert sorted(path.suffix for path in tmp_path.rglob("*") if path.is_file()) == ["", *[".deb"] * 4, ".json"]
