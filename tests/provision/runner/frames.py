"""Frames as our callback writes them."""

from __future__ import annotations

import json
from typing import Any

from provision.apply.runner.channel import Frame, Header


def header(event: str = "ok", **more: Any) -> Header:
    given = {"event": event, "time": 0.0, "size": 0, "node": "n1", "task": "write", "role": "runtime", "id": "t1"}
    return Header(**{**given, **more})


def frame(event: str = "ok", *, body: bytes = b"", **more: Any) -> Frame:
    return Frame(header(event, size=len(body), **more), body)


def answer(*, values: dict[str, object] | None = None, **texts: object) -> bytes:
    """Return the body of an answer; ``rc`` and ``censored`` are told apart from the texts."""
    status, censored = texts.pop("rc", None), bool(texts.pop("censored", False))
    body = {"texts": texts, "status": status, "censored": censored, "values": values or {}}
    return json.dumps(body).encode()


def encoded(one: Frame) -> bytes:
    """Return a frame as it travels."""
    head = {name: getattr(one.header, name) for name in Header.__struct_fields__}
    return json.dumps(head).encode() + b"\n" + one.body
