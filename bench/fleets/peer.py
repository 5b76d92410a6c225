"""A controller that lists all Nodes and pods every two minutes, as upgrade controllers that requeue do.

It asks a real API server, in pages of 500 as client-go does. What it does with the answers is left out: nothing of
them is decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from provision.cluster.kubernetes.api.exchange import Request

if TYPE_CHECKING:
    from provision.cluster.kubernetes.api.client import Api

EVERY_S: Final = 120.0
PAGE: Final = 500
LISTED: Final = ("/api/v1/nodes", "/api/v1/pods")


class _Metadata(msgspec.Struct, rename={"continue_": "continue"}):
    continue_: str = ""


class _Page(msgspec.Struct):
    metadata: _Metadata


def look(api: Api) -> tuple[int, int]:
    """List everything once; return the number of requests and the bytes that came."""
    requests = size = 0
    for path in LISTED:
        query: dict[str, str | int] = {"limit": PAGE}
        while True:
            body = bytes(api.call(Request(method="GET", path=path, query=query), msgspec.Raw))
            requests, size = requests + 1, size + len(body)
            more = msgspec.json.decode(body, type=_Page).metadata.continue_
            if not more:
                break
            query["continue"] = more
    return requests, size
