"""Reads what an API server has counted: requests by verb and resource, of everybody."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from provision.cluster.kubernetes.api.exchange import Request

if TYPE_CHECKING:
    from provision.cluster.kubernetes.api.client import Api

_LINE: Final = re.compile(r"^apiserver_request_total\{(?P<labels>.*)\} (?P<count>\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def parse_requests(metrics: str) -> Counter[str]:
    """Return how often what was asked, as "POST jobs" or "PATCH pods/status". Pure."""
    found: Counter[str] = Counter()
    for line in _LINE.finditer(metrics):
        labels = dict(_LABEL.findall(line["labels"]))
        resource = labels.get("resource") or labels.get("scope", "")
        if part := labels.get("subresource"):
            resource = f"{resource}/{part}" if resource else part
        found[f"{labels.get('verb', '')} {resource}"] += int(float(line["count"]))
    return found


def served(api: Api) -> Counter[str]:
    """Return what the API server has served since its start, watches that are still open left out."""
    answer = api._answer(Request(method="GET", path="/metrics"))
    return parse_requests(answer.body.decode())


def count(api: Api, path: str, query: dict[str, str | int] | None = None) -> int:
    """Return how many objects there are, page by page."""
    found, more = 0, ""
    while True:
        asked: dict[str, str | int] = {"limit": 1000, **(query or {}), **({"continue": more} if more else {})}
        page = api.call(Request(method="GET", path=path, query=asked), _Page)
        found, more = found + len(page.items), page.metadata.continue_
        if not more:
            return found


class _Meta(msgspec.Struct, frozen=True, rename={"continue_": "continue"}):
    continue_: str = ""


class _Page(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw]
    metadata: _Meta
