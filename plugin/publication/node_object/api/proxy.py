"""Which proxy leads to the API server, by the rules of Go's programs (`golang.org/x/net/http/httpproxy`). Pure.

client-go follows the environment, so whoever set HTTPS_PROXY for the kubelet means this daemon, too. A unit of systemd
has no such variables unless somebody gave them to it.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from plugin.base.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Mapping

_HTTP_PORT = 80


class Proxy(NamedTuple):
    """An HTTP proxy that is asked to CONNECT. `authorization` is the header, "" for none: a secret."""

    host: str
    port: int
    authorization: str = ""


def find_proxy(host: str, port: int, proxy_url: str | None, environment: Mapping[str, str]) -> Proxy | None:
    """Return the proxy for a server; raises ClusterError. `proxy_url` is the kubeconfig's."""
    if proxy_url is not None:
        return _parse(proxy_url, "proxy-url")
    url = environment.get("HTTPS_PROXY") or environment.get("https_proxy") or ""
    excluded = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    if not url or _is_local(host) or any(_matches(entry, host, port) for entry in excluded.split(",")):
        return None
    return _parse(url, "HTTPS_PROXY")


def _is_local(host: str) -> bool:
    return host.lower() == "localhost" or host == "::1" or (host.startswith("127.") and host.count(".") == 3)  # noqa: PLR2004 - the dots of IPv4


def _matches(entry: str, host: str, port: int) -> bool:
    entry, host = entry.strip().lower(), host.lower()
    if entry == "*":
        return True
    name, colon, number = entry.rpartition(":")
    if colon and number.isdecimal() and (name.endswith("]") or ":" not in name):
        if int(number) != port:
            return False
        entry = name
    entry = entry.strip("[]")
    return bool(entry) and (_is_in_network(host, entry) or _is_in_domain(host, entry))


def _is_in_network(host: str, entry: str) -> bool:
    import ipaddress  # noqa: PLC0415 - few nodes have a proxy

    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False


def _is_in_domain(host: str, entry: str) -> bool:
    """`example.com` is that name and all below it, `.example.com` and `*.example.com` what is below it."""
    entry = entry.removeprefix("*")
    return host.endswith(entry if entry.startswith(".") else f".{entry}") or host == entry


def _parse(url: str, origin: str) -> Proxy:
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname or "", parts.port or _HTTP_PORT
    except ValueError as error:
        raise ClusterError(f"{origin} is not an address", "give it as http://HOST:PORT") from error
    if parts.scheme != "http" or not host:
        raise ClusterError(f"{origin} names no http proxy", "only http://HOST:PORT is supported")
    if parts.username is None:
        return Proxy(host, port)
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Proxy(host, port, f"Basic {base64.b64encode(pair.encode()).decode()}")
