"""Reads credentials and certificates for the API, and reads them again when a file of theirs has changed.

The kubelet exchanges its certificate and a pod's token while they are in use. Keys that are in the kubeconfig itself
get to OpenSSL through a file in memory, never through a disk.
"""

from __future__ import annotations

import contextlib
import os
import re
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from plugin.base.errors import ClusterError, ConfigError, os_reason
from plugin.publication.node_object.api.access import SERVICE_ACCOUNT, Access, in_cluster_access, parse_kubeconfig
from plugin.settings.node_config import IN_CLUSTER
from plugin.settings.nvidia.yaml_file import read_document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from plugin.publication.node_object.api.access import Secret

_MAX_BYTES = 1024 * 1024
_TOKEN = re.compile(r"[!-~]{1,65536}")
_LINE = re.compile(r"line \d+")


class ApiAccess(NamedTuple):
    """Everything that a connection needs. `token` is a secret, "" for none."""

    access: Access
    context: ssl.SSLContext
    token: str


class Credentials:
    """`source` is a kubeconfig's path, or "in-cluster"."""

    def __init__(self, source: str, environment: Mapping[str, str], service_account: Path = SERVICE_ACCOUNT) -> None:
        self._source = source
        self._environment = environment
        self._service_account = service_account
        self._access: Access | None = None
        self._context: ssl.SSLContext | None = None
        self._seen: dict[Path, tuple[int, int, int]] = {}

    def current(self) -> ApiAccess:
        """Return access as the files say now; raises ClusterError."""
        if self._access is None or self._context is None or self._seen != self._look(self._access):
            # What is exchanged while it is read differs from what was seen before, and is read again the next time.
            source = _fingerprint(Path(self._source))
            self._access = self._read_access()
            seen = self._look(self._access)
            self._context = _make_context(self._access)
            self._seen = {path: source if path == Path(self._source) else mark for path, mark in seen.items()}
        return ApiAccess(self._access, self._context, _read_token(self._access.token))

    def forget(self) -> None:
        """Read everything again the next time: the API did not accept it."""
        self._access = None

    def _look(self, access: Access) -> dict[Path, tuple[int, int, int]]:
        own = () if self._source == IN_CLUSTER else (Path(self._source),)
        return {path: _fingerprint(path) for path in (*own, *access.files) if path != access.token.path}

    def _read_access(self) -> Access:
        if self._source == IN_CLUSTER:
            access = in_cluster_access(self._environment, self._service_account)
            if not (self._service_account / "token").exists():
                hint = "nodeDaemon.kubernetesApi: true of the chart, or automountServiceAccountToken: true of the pod"
                raise ClusterError("this pod has no token of a service account", hint)
            return access
        path = Path(self._source)
        _read_file(path)  # for an error in the words of this file
        try:
            content = read_document(path).content
        except ConfigError as error:
            # The parser's words may quote the line, and that may hold a key.
            lines = _LINE.findall(error.message.removeprefix(str(path)))
            where = f" ({lines[-1]})" if lines else ""
            raise ClusterError(f"{path}: not valid yaml{where}", "check it with: kubectl config view") from None
        return parse_kubeconfig(content, path)


def _fingerprint(path: Path) -> tuple[int, int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0, 0)
    return status.st_mtime_ns, status.st_ino, status.st_size


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            content = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        hint = "it is named by kubernetesApi or --kubeconfig, or by the kubeconfig that this names"
        raise ClusterError(f"{path}: {os_reason(error)}", hint) from error
    if len(content) > _MAX_BYTES:
        raise ClusterError(f"{path}: larger than {_MAX_BYTES} bytes", "is this the right file?")
    return content


def _read_token(secret: Secret) -> str:
    """Return the token; one that would not be a header is an error that does not show it."""
    if not secret:
        return ""
    content = secret.content if secret.path is None else _read_file(secret.path)
    token = content.decode("latin-1").strip()
    if not _TOKEN.fullmatch(token):
        raise ClusterError(f"{secret.path or 'the kubeconfig'}: holds no token", "a token is one line without spaces")
    return token


def _make_context(access: Access) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks certificate and name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if access.authority:
            pem = access.authority.content or _read_file(access.authority.path or Path())
            context.load_verify_locations(cadata=pem.decode("ascii", "replace"))
        else:
            context.load_default_certs()
    except (ssl.SSLError, ValueError) as error:
        raise ClusterError(
            "the authority of the api server is not a certificate", "see certificate-authority"
        ) from error
    if access.certificate:
        _load_certificate(context, access.certificate, access.key)
    return context


def _load_certificate(context: ssl.SSLContext, certificate: Secret, key: Secret) -> None:
    where = certificate.path or "the kubeconfig"
    try:
        with _as_file(certificate) as certificate_file, _as_file(key) as key_file:
            context.load_cert_chain(certificate_file, key_file, password=_no_password)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        words = (
            (getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)).lower().replace("_", " ")
        )
        hint = "it is read again at the next try; do certificate and key belong together?"
        raise ClusterError(f"{where}: certificate or key cannot be used: {words}", hint) from error


def _no_password() -> bytes:
    raise ValueError("the key is encrypted")


@contextlib.contextmanager
def _as_file(secret: Secret) -> Iterator[str]:
    if secret.path is not None:
        yield str(secret.path)
        return
    descriptor = os.memfd_create("credentials", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, secret.content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
