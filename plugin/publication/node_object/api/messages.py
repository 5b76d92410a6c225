"""One call of the Kubernetes API and its answer, as values. Pure."""

from __future__ import annotations

from typing import NamedTuple

JSON = "application/json"


class Request(NamedTuple):
    """One call. `verb` and `resource` are those of RBAC, for messages."""

    method: str
    path: str
    verb: str
    resource: str
    content_type: str = ""
    body: bytes = b""
    accept: str = JSON


class ApiResponse(NamedTuple):
    """One answer. `retry_after` is the header, "" where there is none."""

    status: int
    body: bytes = b""
    retry_after: str = ""
