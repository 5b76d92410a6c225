"""HTTPS to the API server: one connection for a few calls, each within its time.

The only module that moves bytes. Not here: what is asked, and what the answers mean.
"""

from __future__ import annotations

import http.client
import os
import re
import socket
import ssl
from typing import TYPE_CHECKING

from plugin import __version__
from plugin.base.errors import ClusterError
from plugin.publication.node_object.api.access import find_proxy
from plugin.publication.node_object.api.messages import MAX_BYTES, ApiResponse, Limits
from plugin.publication.node_object.api.wire import Patience, Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plugin.publication.node_object.api.access import Proxy
    from plugin.publication.node_object.api.credentials import ApiAccess
    from plugin.publication.node_object.api.messages import Request

_MAX_PROXY_BYTES = 8192
_CONNECTED = re.compile(rb"HTTP/1\.[01] 200[ \r]")
_NETWORK_HINT = "it is tried again until it answers; does the server of kubernetesApi answer on this node?"
_CERTIFICATE_HINT = (
    "is it this cluster's authority, is the server's name in its certificate, is this node's clock right?"
)


class _Https(http.client.HTTPSConnection):
    """Goes through a proxy if there is one, and checks the certificate against the name that the kubeconfig gives."""

    def __init__(self, api: ApiAccess, proxy: Proxy | None, limits: Limits) -> None:
        access = api.access
        super().__init__(access.host, access.port, timeout=limits.connect_s, context=api.context)
        self._tls = api.context
        self._proxy = proxy
        self._name = access.server_name or access.host
        self._read_s = limits.read_s
        self.wire = Wire()

    def connect(self) -> None:
        dialled = (self.host, self.port) if self._proxy is None else (self._proxy.host, self._proxy.port)
        plain = self.sock = socket.create_connection(dialled, self.timeout)
        self.wire.take(plain)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._proxy is not None:
            _pass_through(plain, server_text(self.host, self.port), self._proxy.authorization)
        self.sock = self._tls.wrap_socket(plain, server_hostname=self._name, do_handshake_on_connect=False)
        self.sock.do_handshake()
        self.sock.settimeout(self._read_s)


def server_text(host: str, port: int) -> str:
    """Return host and port as one text."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _pass_through(sock: socket.socket, server: str, authorization: str) -> None:
    """Have a proxy connect to the server; raises ClusterError when it does not."""
    credentials = f"Proxy-Authorization: {authorization}\r\n" if authorization else ""
    sock.sendall(f"CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n{credentials}\r\n".encode("ascii", "replace"))
    answer = b""
    while not answer.endswith(b"\r\n\r\n") and len(answer) < _MAX_PROXY_BYTES:
        byte = sock.recv(1)  # what follows is not the proxy's
        if not byte:
            break
        answer += byte
    if not _CONNECTED.match(answer):
        raise ClusterError(f"{server}: the proxy does not connect to it", "see HTTPS_PROXY, NO_PROXY and proxy-url")


class Connection:
    """Opened by the first call; closed by whoever has no more to ask, and by every failure."""

    def __init__(
        self, api: ApiAccess, environment: Mapping[str, str] | None = None, limits: Limits | None = None
    ) -> None:
        self._api = api
        self._limits = limits or Limits()
        access = api.access
        self._server = server_text(access.host, access.port)
        environment = os.environ if environment is None else environment
        proxy = find_proxy(access.host, access.port, access.proxy_url, environment)
        self._http = _Https(api, proxy, self._limits)

    def call(self, request: Request) -> ApiResponse:
        """Return the answer, whatever its status; raises ClusterError where there is none."""
        patience = Patience(self._http.wire, self._limits.call_s)
        try:
            with patience:
                return self._call(request, patience)
        except ssl.SSLCertVerificationError as error:
            self.close()
            words = error.verify_message or str(error)
            raise ClusterError(f"{self._server}: certificate refused: {words.lower()}", _CERTIFICATE_HINT) from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            words = f"no answer within {self._limits.call_s:g} s" if patience.is_over else _words(error)
            raise ClusterError(f"{self._server}: {words}", _NETWORK_HINT) from error
        except ClusterError:
            self.close()
            raise

    def follow(self, request: Request, hear: Callable[[bytes], None]) -> ApiResponse:
        """Have each line of an answer without end heard until the server ends it, which takes as long as it likes.

        What is heard first is an empty line: the server answers. The answer that is returned has a body where it is no
        success. Raises ClusterError where it breaks off, or a line takes longer than a part of an answer may.
        """
        try:
            with Patience(self._http.wire, self._limits.call_s) as patience:
                response = self._send(request)
                if patience.is_over:  # what had come of a head passes for all of it
                    raise ClusterError(f"{self._server}: no answer within {self._limits.call_s:g} s", _NETWORK_HINT)
                if response.status != http.client.OK:
                    return ApiResponse(
                        response.status, response.read(MAX_BYTES), response.headers.get("Retry-After", "")
                    )
                patience.rest()
                hear(b"")
            with Patience(self._http.wire, self._limits.read_s) as patience:
                while line := response.readline(MAX_BYTES + 1):
                    if len(line) > MAX_BYTES:
                        raise ClusterError(f"{self._server}: a line is larger than {MAX_BYTES} bytes")
                    if patience.is_over:
                        break  # it is what had come of one
                    patience.rest()
                    hear(line)
                    patience.again()
            if patience.is_over:
                raise ClusterError(f"{self._server}: no answer in time", _NETWORK_HINT)
        except (OSError, http.client.HTTPException) as error:
            raise ClusterError(f"{self._server}: {_words(error)}", _NETWORK_HINT) from error
        finally:
            self.close()
        return ApiResponse(http.client.OK)

    def close(self) -> None:
        """Hang up; of the thread that makes the calls."""
        self._http.close()
        self._http.wire.release()

    def _send(self, request: Request) -> http.client.HTTPResponse:
        headers = {"Accept": request.accept, "User-Agent": f"grapnel-node/{__version__}"}
        if request.content_type:
            headers["Content-Type"] = request.content_type
        if self._api.token:
            headers["Authorization"] = f"Bearer {self._api.token}"
        path = f"{self._api.access.base_path}{request.path}"
        self._http.request(request.method, path, body=request.body or None, headers=headers)
        return self._http.getresponse()

    def _call(self, request: Request, patience: Patience) -> ApiResponse:
        response = self._send(request)
        limit = self._limits.answer_bytes
        body = response.read(limit + 1)
        if len(body) > limit:
            raise ClusterError(f"{self._server}: the answer is larger than {limit} bytes", "is this an API server?")
        if patience.is_over or response.length:
            raise http.client.IncompleteRead(b"", response.length)
        if self._http.sock is None:  # the server wanted it closed
            self.close()
        return ApiResponse(response.status, body, response.headers.get("Retry-After", ""))


def _words(error: OSError | http.client.HTTPException) -> str:
    """Return an error in words that hold nothing of what was sent or received."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLError):
        return f"tls: {(error.reason or 'the connection was closed').lower().replace('_', ' ')}"
    if isinstance(error, OSError):
        told = (error.strerror or "").lower()
        return told or "the connection was closed"
    return f"the answer is not http ({type(error).__name__})"
