"""One call of the Kubernetes API and its answer, as values. Pure."""

from __future__ import annotations

from typing import NamedTuple

JSON = "application/json"
MAX_BYTES = 4 * 1024 * 1024  # etcd takes objects up to 1.5 MiB


class Request(NamedTuple):
    """One call. `verb` and `resource` are those of RBAC, for messages."""

    method: str
    path: str
    verb: str
    resource: str
    content_type: str = ""
    body: bytes = b""
    accept: str = JSON


class Limits(NamedTuple):
    """Seconds: to connect, for each part of an answer, and for a whole call. `answer_bytes` is how long one may be."""

    connect_s: float = 5.0
    read_s: float = 10.0
    call_s: float = 20.0
    answer_bytes: int = MAX_BYTES


class ApiResponse(NamedTuple):
    """One answer. `retry_after` is the header, "" where there is none."""

    status: int
    body: bytes = b""
    retry_after: str = ""
