"""The little of HTTP/1.1 that a scrape needs: a head in, an answer out, and the connection is closed.

Pure. Source: RFC 9112 (request line), RFC 9110 (methods and status codes). A request has no body that would be read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus

PATH = "/metrics"
_REQUEST_LINE = re.compile(rb"([!-~]{1,16}) ([!-~]{1,1024}) HTTP/1\.[01]")
_TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class PageResponse:
    """What is sent back."""

    status: HTTPStatus
    body: bytes = b""
    content_type: str = _TEXT
    allow: str = ""

    def to_bytes(self) -> bytes:
        """Return head and body."""
        lines = [
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {len(self.body)}",
            "Connection: close",
            *([f"Allow: {self.allow}"] if self.allow else []),
        ]
        return "".join(f"{line}\r\n" for line in [*lines, ""]).encode() + self.body


def refusal(status: HTTPStatus, words: str) -> PageResponse:
    """Return an answer that says why not."""
    return PageResponse(status, f"{words}\n".encode(), allow="GET" if status is HTTPStatus.METHOD_NOT_ALLOWED else "")


def refuse(head: bytes) -> PageResponse | None:
    """Return why this request is not answered with the page, None where it is. `head` ends with an empty line."""
    match = _REQUEST_LINE.fullmatch(head.partition(b"\r\n")[0])
    if match is None:
        return refusal(HTTPStatus.BAD_REQUEST, "not a request of HTTP/1.1")
    method, target = match.groups()
    if method != b"GET":
        return refusal(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is answered")
    if target.partition(b"?")[0] != PATH.encode():
        return refusal(HTTPStatus.NOT_FOUND, f"there is only {PATH}")
    return None
