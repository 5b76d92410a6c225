"""Downloads a runfile to the machine that runs grapnel; what is not the declared file is not kept."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, TypeAlias, cast
from urllib.parse import urlsplit

from provision.base.asking import Deadline, https_proxy
from provision.base.printable import printable
from provision.planning.supply.runfile.archive import unusable
from provision.planning.supply.runfile.errors import RunfileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from http.client import HTTPMessage as Message

MAX_BYTES: Final = 2 * 1024**3  # three times the largest that there is
TIMEOUT_S: Final = 30.0  # without a byte
WHOLE_S: Final = 2 * 3600.0  # redirects included: the largest that there is, at 100 KB a second
_CHUNK_BYTES: Final = 1024 * 1024


Opener: TypeAlias = "Callable[[str], AbstractContextManager[IO[bytes]]]"


class HttpsOnly(urllib.request.HTTPRedirectHandler):
    """Follows a redirection to https alone: a file of another scheme is one of this machine's own."""

    def redirect_request(  # noqa: PLR0917 - urllib's own
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        if not newurl.startswith("https://"):
            raise urllib.error.URLError(f"it leads to {printable(newurl, limit=100)}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Https(urllib.request.HTTPSHandler):
    """Makes every connection under one deadline: a byte now and then resets any other."""

    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connection, req)  # type: ignore[arg-type] # it takes what is called with host and timeout

    def _connection(self, host: str, *, timeout: float) -> http.client.HTTPSConnection:
        return self._deadline.bind(http.client.HTTPSConnection(host, timeout=timeout))


@contextlib.contextmanager
def open_url(url: str, *, silence_s: float = TIMEOUT_S, whole_s: float = WHOLE_S) -> Iterator[IO[bytes]]:
    """Open a URL, through the proxy that the environment names, if there is one."""
    try:
        https_proxy(urlsplit(url).hostname or "")
    except OSError as error:
        raise urllib.error.URLError(error.strerror or "https_proxy cannot be used") from error
    with Deadline(whole_s) as deadline:
        opener = urllib.request.build_opener(HttpsOnly, _Https(deadline))
        with opener.open(url, timeout=silence_s) as answer:
            yield cast("IO[bytes]", answer)


def download(url: str, sha256: str, folder: Path, opened: Opener, limit_bytes: int = MAX_BYTES) -> Path:
    """Return a file with the content of a URL, in a folder; raises `RunfileError` for any other than was declared."""
    found, size = hashlib.sha256(), 0
    try:
        with (
            opened(url) as answer,
            tempfile.NamedTemporaryFile(dir=folder, prefix="download-", delete=False) as out,
        ):
            while chunk := answer.read(_CHUNK_BYTES):
                size += len(chunk)
                if size > limit_bytes:
                    raise RunfileError(
                        f"{url} is larger than {limit_bytes} bytes", hint="is it the driver's .run file?"
                    )
                found.update(chunk)
                out.write(chunk)
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError) as error:
        said = printable(str(getattr(error, "reason", "") or error), limit=200)
        raise RunfileError(
            f"{url} cannot be downloaded: {said}",
            hint="see that this machine reaches it (https_proxy), or get the file yourself and declare its path",
        ) from error
    except OSError as error:
        raise unusable(folder, error) from error
    if found.hexdigest() != sha256:
        raise RunfileError(
            f"{url} has the SHA-256 digest {found.hexdigest()}, and driver.runfile.sha256 is {sha256}",
            hint="it was cut, changed or is another file: compare with the checksum that its maker publishes",
        )
    return Path(out.name)
