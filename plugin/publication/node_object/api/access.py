"""How to reach the API: a kubeconfig file, or what a pod finds. Pure: documents in, a value out.

What runs other programs (`exec`, `auth-provider`) and what would talk to anybody (no check of the server's certificate)
is refused by name. Secrets are kept out of `repr`, and of every message.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from plugin.base.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Mapping

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_HTTPS_PORT = 443
_MAX_PORT = 65535
_HINT = "the form of a kubeconfig: kubectl config view --help"
_REFUSED_OF_USER = {
    "exec": "the daemon runs no programs for credentials: use a certificate or a token file",
    "auth-provider": "the daemon runs no programs for credentials: use a certificate or a token file",
    "username": "passwords are not supported by Kubernetes any more: use a certificate or a token file",
    "password": "passwords are not supported by Kubernetes any more: use a certificate or a token file",
    "as": "the daemon speaks for itself alone: give it credentials of its own",
    "as-uid": "the daemon speaks for itself alone: give it credentials of its own",
    "as-groups": "the daemon speaks for itself alone: give it credentials of its own",
    "as-user-extra": "the daemon speaks for itself alone: give it credentials of its own",
}


@dataclass(frozen=True)
class Secret:
    """PEM text or a token: in place, or in a file that is read each time. Neither: there is none."""

    content: bytes = field(default=b"", repr=False)
    path: Path | None = None

    def __bool__(self) -> bool:
        return bool(self.content) or self.path is not None


@dataclass(frozen=True)
class Access:
    """Where the API server is, what it is known by, and what the daemon is known by there."""

    host: str
    port: int
    base_path: str = ""
    server_name: str = ""  # of its certificate, where that is not the host
    authority: Secret = Secret()  # none: those of the system
    certificate: Secret = Secret()
    key: Secret = Secret()
    token: Secret = Secret()
    proxy_url: str | None = field(default=None, repr=False)  # None: as the environment says; may hold a password

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that it is made of."""
        secrets = (self.authority, self.certificate, self.key, self.token)
        return tuple(secret.path for secret in secrets if secret.path is not None)


def in_cluster_access(environment: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> Access:
    """Return how a pod reaches the API; raises ClusterError outside of a pod."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port.isdecimal() or not 1 <= int(port) <= _MAX_PORT:
        raise ClusterError(
            "kubernetesApi is in-cluster, and KUBERNETES_SERVICE_HOST and _PORT are not set",
            "a pod has them; on a host name a kubeconfig file",
        )
    return Access(host, int(port), authority=Secret(path=folder / "ca.crt"), token=Secret(path=folder / "token"))


def parse_kubeconfig(document: object, origin: Path) -> Access:
    """Return what the current context of a kubeconfig says; raises ClusterError. Relative paths are beside the file."""
    config = _mapping(document, f"{origin}")
    context = _named(config, "contexts", "context", config.get("current-context"), origin)
    cluster = _named(config, "clusters", "cluster", context.get("cluster"), origin)
    user = _named(config, "users", "user", context.get("user"), origin)
    for key, remedy in _REFUSED_OF_USER.items():
        if user.get(key):
            raise ClusterError(f'{origin}: user has "{key}", which is not supported', remedy)
    if cluster.get("insecure-skip-tls-verify"):
        remedy = "name the server's authority with certificate-authority"
        raise ClusterError(f'{origin}: cluster has "insecure-skip-tls-verify", which is not supported', remedy)
    host, port, base_path = _server(cluster.get("server"), origin)
    folder = origin.parent
    access = Access(
        host,
        port,
        base_path,
        server_name=_text(cluster, "tls-server-name", origin),
        authority=_secret(cluster, "certificate-authority", folder, origin),
        certificate=_secret(user, "client-certificate", folder, origin),
        key=_secret(user, "client-key", folder, origin),
        token=_token(user, folder, origin),
        proxy_url=_text(cluster, "proxy-url", origin) or None,
    )
    if bool(access.certificate) != bool(access.key):
        raise ClusterError(f"{origin}: client-certificate and client-key must both be there", _HINT)
    if not access.certificate and not access.token:
        raise ClusterError(f"{origin}: user has no certificate and no token", _HINT)
    return access


def _mapping(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ClusterError(f"{what}: must be a mapping", _HINT)
    return value


def _named(config: Mapping[str, Any], key: str, member: str, name: object, origin: Path) -> Mapping[str, Any]:
    rows = config.get(key)
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict) and isinstance(name, str) and row.get("name") == name:
            return _mapping(row.get(member) or {}, f"{origin}: {key}")
    shown = f'"{name[:64]}"' if isinstance(name, str) else "without a name"
    raise ClusterError(f"{origin}: there is no {member} {shown}", "see current-context: kubectl config view")


def _server(value: object, origin: Path) -> tuple[str, int, str]:
    try:
        parts = urlsplit(value if isinstance(value, str) else "")
        host, port = parts.hostname or "", parts.port or _HTTPS_PORT
    except ValueError as error:
        raise ClusterError(f"{origin}: server is not an address", _HINT) from error
    if parts.scheme != "https" or not host or parts.query or parts.fragment or parts.username:
        raise ClusterError(f"{origin}: server must be https://HOST[:PORT][/PATH]", _HINT)
    return host, port, parts.path.rstrip("/")


def _text(section: Mapping[str, Any], key: str, origin: Path) -> str:
    value = section.get(key)
    if value is not None and not isinstance(value, str):
        raise ClusterError(f"{origin}: {key} must be a text", _HINT)
    return value or ""


def _secret(section: Mapping[str, Any], key: str, folder: Path, origin: Path) -> Secret:
    """Return `KEY-data` (base64) or the file `KEY`; as in client-go, data comes first."""
    data = _text(section, f"{key}-data", origin)
    if data:
        try:
            return Secret(base64.b64decode("".join(data.split()), validate=True))
        except (binascii.Error, ValueError) as error:
            raise ClusterError(f"{origin}: {key}-data is not base64", _HINT) from error
    name = _text(section, key, origin)
    return Secret(path=folder / name) if name else Secret()


def _token(user: Mapping[str, Any], folder: Path, origin: Path) -> Secret:
    """Return the file or the token; as in client-go, the file comes first."""
    name = _text(user, "tokenFile", origin)
    return Secret(path=folder / name) if name else Secret(_text(user, "token", origin).encode())


# Which proxy leads to the API server, by the rules of Go's programs (`golang.org/x/net/http/httpproxy`). client-go
# follows the environment, so whoever set HTTPS_PROXY for the kubelet means this daemon, too. A unit of systemd has no
# such variables unless they were given to it.

_HTTP_PORT = 80
_IPV4_DOTS = 3


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
    return host.lower() == "localhost" or host == "::1" or (host.startswith("127.") and host.count(".") == _IPV4_DOTS)


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
