"""A runfile from a URL: taken only as the declared file, over https alone, and gone when it is not that."""

from __future__ import annotations

import hashlib
import io
import urllib.error
import urllib.request
from email.message import Message
from typing import IO, TYPE_CHECKING

import pytest

from lab.runfile import SmallDriver
from provision.runfile.errors import RunfileError
from provision.runfile.fetch import HttpsOnly, download
from provision.runfile.store import RunfileStore
from provision.spec.model import Runfile

if TYPE_CHECKING:
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


@pytest.mark.parametrize("target", ["file:///etc/shadow", "http://mirror.example.com/x", "ftp://mirror.example.com/x"])
def test_a_redirection_to_anything_but_https_is_not_followed(target: str) -> None:
    handler = HttpsOnly()
    request = urllib.request.Request(URL)

    with pytest.raises(urllib.error.URLError, match="not https"):
        handler.redirect_request(request, io.BytesIO(), 302, "Found", Message(), target)  # type: ignore[arg-type] # headers

    assert handler.redirect_request(request, io.BytesIO(), 302, "Found", Message(), URL) is not None  # type: ignore[arg-type] # as above


def test_the_download_is_gone_once_it_is_converted(tmp_path: Path) -> None:
    content = SmallDriver("550.54.15").content()
    declared = Runfile(url=URL, sha256=hashlib.sha256(content).hexdigest())

    made = RunfileStore(tmp_path, lambda _: answers(content)).convert(declared)

    assert made.driver_version == "550.54.15"
    assert sorted(path.suffix for path in tmp_path.rglob("*") if path.is_file()) == ["", *[".deb"] * 4, ".json"]
