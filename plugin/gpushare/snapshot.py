"""Reads the books of one moment, for people; whoever decides by them follows the cluster instead (`follower`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.gpushare import requests
from plugin.gpushare.books.book import Books
from plugin.gpushare.books.objects import parse_node, parse_pod
from plugin.gpushare.follower import pages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from plugin.gpushare.follower import Api
    from plugin.gpushare.requests import Collection


def read_books(api: Api, resource: str, node: str = "") -> Books:
    """Return the books of all nodes, or of one; raises ClusterError, also where there is no such node."""
    books = Books()
    nodes = iter([api.call(requests.read_node(node))]) if node else _items(api, requests.NODES)
    books.replace_nodes(parse_node(document, resource) for document in nodes)
    for document in _items(api, requests.pods_of(node) if node else requests.PODS):
        pod = parse_pod(document, resource)
        if pod is not None:
            books.put_pod(pod)
    return books


def _items(api: Api, collection: Collection) -> Iterator[dict[str, Any]]:
    for page in pages(api, collection):
        yield from page.get("items") or ()
