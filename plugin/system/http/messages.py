"""The little of HTTP/1.1 that is spoken here: a request in, an answer out. Pure.

Source: RFC 9112 (request line, fields), RFC 9110 (methods and status codes).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple

__all__ = ["HTTPStatus", "HttpHead", "HttpResponse", "parse_head", "say"]

_REQUEST_LINE = re.compile(rb"([!-~]{1,16}) ([!-~]{1,1024}) HTTP/1\.[01]")
_TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class HttpResponse:
    """What is sent back; `allow` is the method that would have been answered."""

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


def say(status: HTTPStatus, words: str, *, allow: str = "") -> HttpResponse:
    """Return an answer of one line."""
    return HttpResponse(status, f"{words}\n".encode(), allow=allow)


class HttpHead(NamedTuple):
    """What a request begins with; the path is without its query."""

    method: str
    path: str
    fields: bytes = b"\r\n"  # as sent

    def field(self, name: str) -> str | None:
        """Return the value of a field, None where it is not sent."""
        found = re.search(rb"\r\n" + name.encode() + rb":[ \t]*([^\r]*?)[ \t]*\r\n", self.fields, re.IGNORECASE)
        return found and found[1].decode("latin-1")


def parse_head(head: bytes) -> HttpHead | None:
    """Return what is asked for, None where that is no request. `head` ends with an empty line."""
    line = head.partition(b"\r\n")[0]
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        return None
    return HttpHead(match[1].decode(), match[2].partition(b"?")[0].decode(), head[len(line) :])
