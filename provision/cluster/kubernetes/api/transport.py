"""Sends one request to an API server; the only module that imports the Kubernetes client, which costs a second.

The client does what would be unwise to do again: credentials of every kind (certificates, tokens, exec plugins,
OIDC), TLS and proxies. Its generated models are not used, see ``objects``. No message repeats a token, a key or
what the client says of them.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
import threading
import weakref
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import urllib3.exceptions
from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException, load_kube_config_from_dict

from provision.base.asking import Deadline, HangUp
from provision.cluster.errors import KubeconfigError, RefusedError
from provision.cluster.kubernetes.api import bounded_pools
from provision.cluster.kubernetes.api.exchange import ApiResponse, Stream
from provision.cluster.kubernetes.api.kubeconfig import MemoryFiles, by_path
from provision.cluster.kubernetes.api.parallel import WORKERS
from provision.rollout.errors import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kubernetes.client.rest import RESTResponse
    from urllib3 import BaseHTTPResponse

    from provision.cluster.kubernetes.api.exchange import Request
    from provision.cluster.kubernetes.api.kubeconfig import Kubeconfig

CONNECT_TIMEOUT_S: Final = 5.0
_PIECE_BYTES: Final = 1 << 16
_UNAUTHORIZED: Final = 401


class Transport:
    """Sends requests with the credentials of a kubeconfig; safe to be used by several threads."""

    def __init__(self, kubeconfig: Kubeconfig, *, key_folder: Path | None = None) -> None:
        """Log in. ``key_folder`` is where keys that an exec plugin returns are files for a moment.

        Raises KubeconfigError: a file or plugin that it names does not work.
        """
        self.name = kubeconfig.name
        self._kubeconfig = kubeconfig
        self._key_folder = key_folder
        self._client = self._log_in()
        self._was_accepted = False
        self._mutex = threading.Lock()  # around logging in again

    def send(self, request: Request) -> ApiResponse:
        """Return the answer; raises UnreachableError when there is none.

        When credentials that had worked are refused they are read again, once: tokens are exchanged under a long run.
        """
        client = self._client
        answer = self._send(client, request)
        if answer.code == _UNAUTHORIZED and (renewed := self._renewed(client)) is not None:
            answer = self._send(renewed, request)
        self._was_accepted = self._was_accepted or answer.code != _UNAUTHORIZED
        return answer

    def stream(self, request: Request) -> Stream:
        """Return an answer to be read as it comes; ``timeout_s`` of the request limits how long each line may take."""
        client = self._client
        response = self._begin(client, request)
        if response.status == _UNAUTHORIZED and (renewed := self._renewed(client)) is not None:
            response.response.close()
            response = self._begin(renewed, request)
        raw = response.response
        close, release = _ends(raw)
        return Stream(
            code=response.status,
            headers=response.headers,
            lines=self._lines(raw, request),
            close=close,
            release=release,
        )

    def _lines(self, raw: BaseHTTPResponse, request: Request) -> Iterator[bytes]:
        try:
            with Deadline(request.timeout_s) as deadline:
                with contextlib.suppress(OSError):  # an answer without a body has ended already
                    deadline.take(raw)
                for line in self._cut_lines(raw, request.longest_line):
                    deadline.rest()  # whoever hears it takes as long as it likes
                    yield line
                    deadline.again()
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:  # a ValueError: it was closed
            raise self._silent(error) from error

    def _cut_lines(self, raw: BaseHTTPResponse, longest: int) -> Iterator[bytes]:
        pieces: list[bytes] = []
        length = 0
        for piece in raw.stream(_PIECE_BYTES):
            *lines, rest = piece.split(b"\n")
            for line in lines:
                yield b"".join((*pieces, line))
                pieces.clear()
                length = 0
            pieces.append(rest)
            length += len(rest)
            if length > longest:  # whoever writes it may go on for ever
                raise RefusedError(f"{self.name} sends a line of more than {longest} bytes")
        if last := b"".join(pieces):
            yield last

    def _renewed(self, refused: ApiClient) -> ApiClient | None:
        """Return a client with the credentials as they are now; None where those that are refused never worked.

        Of several threads whose token runs out at the same moment one logs in, and the others take what it has.
        """
        with self._mutex:
            if self._client is not refused:
                return self._client
            if not self._was_accepted:
                return None
            self._was_accepted = False
            self._client = self._log_in()
            return self._client

    def _send(self, client: ApiClient, request: Request) -> ApiResponse:
        with self._failures(), bounded_pools.within(request.whole_s):
            response = self._open(client, request)
            return ApiResponse(code=response.status, body=self._body(response, request), headers=response.headers)

    def _body(self, response: RESTResponse, request: Request) -> bytes:
        body = bytearray()
        for piece in response.response.stream(_PIECE_BYTES):  # unpacked piece by piece, if it is packed
            body += piece
            if len(body) > request.longest:
                response.response.close()
                raise RefusedError(f"{self.name} sends an answer of more than {request.longest} bytes")
        return bytes(body)

    def _begin(self, client: ApiClient, request: Request) -> RESTResponse:
        with self._failures(), bounded_pools.within(request.whole_s):
            # A stream that is ended must not take along who has its connection next.
            return self._open(client, request, headers=bounded_pools.ALONE)

    def _open(
        self, client: ApiClient, request: Request, headers: Mapping[str, str] = MappingProxyType({})
    ) -> RESTResponse:
        with self._failures():
            method, url, sent, body, _form = client.param_serialize(
                request.method,
                request.path,
                query_params=list(request.query.items()),
                header_params={"Accept": "application/json", "Content-Type": request.content_type, **headers},
                body=request.body,
                auth_settings=["BearerToken"],
            )
            limits = (min(CONNECT_TIMEOUT_S, request.timeout_s), request.timeout_s)
            return client.call_api(method, url, sent, body, _request_timeout=limits)

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except (urllib3.exceptions.HTTPError, ApiException, OSError) as error:
            raise self._silent(error) from error
        except (ConfigException, ValueError) as error:  # credentials that are renewed, or do not fit into a header
            raise self._unusable(error) from None

    def _log_in(self) -> ApiClient:
        configuration = Configuration()
        configuration.retries = False  # urllib3 would try again on its own terms
        configuration.connection_pool_maxsize = WORKERS + 4  # the lease, watches, and who else asks
        configuration.keep_alive = True  # a watch may be silent for a minute: the kernel notices that the peer is gone
        files = MemoryFiles()
        try:
            with _plugin_complaints() as complaints:
                self._load(configuration, files)
        except OSError as error:
            place = error.filename or "a file that it names"
            raise KubeconfigError(f"credentials of {self.name}: {place}: {error.strerror}") from error
        except (ConfigException, ValueError, TypeError, KeyError, AttributeError) as error:
            raise self._unusable(error) from None
        if complaints:
            raise KubeconfigError(f"credentials of {self.name}: {complaints[0]}", hint="log in as for kubectl")
        client = ApiClient(configuration)
        bounded_pools.bind(client.rest_client.pool_manager)
        weakref.finalize(client, files.close)
        client.user_agent = "grapnel"
        return client

    def _load(self, configuration: Configuration, files: MemoryFiles) -> None:
        """Read the credentials. What the client has written for it is in memory as well when this returns."""
        with tempfile.TemporaryDirectory(prefix="grapnel-", dir=self._key_folder) as folder:
            load_kube_config_from_dict(
                by_path(_with_token(self._kubeconfig.document), files),
                persist_config=False,
                temp_file_path=folder,
                client_configuration=configuration,
            )
            for name in ("ssl_ca_cert", "cert_file", "key_file"):
                path = getattr(configuration, name)
                if path is not None and Path(path).parent == Path(folder):
                    setattr(configuration, name, files.put(Path(path).read_bytes()))

    def _silent(self, error: Exception) -> UnreachableError:
        return UnreachableError(
            f"{self.name} does not answer: {describe_failure(error)}",
            hint="check whether `kubectl version` reaches it with the same kubeconfig and context",
        )

    def _unusable(self, error: Exception) -> KubeconfigError:
        """Only the client's own words are fit to be repeated; those of Python's errors quote the value."""
        reason = (
            str(error) if isinstance(error, ConfigException) else "they are not in the form that Kubernetes expects"
        )
        return KubeconfigError(f"credentials of {self.name}: {reason}", hint="check whether kubectl works with them")


def _ends(raw: BaseHTTPResponse) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return what ends an answer from any thread, and what its reader releases it with.

    Not ``raw.shutdown``: that is ``SSLSocket.shutdown``, see ``hang_up``.
    """
    try:
        hang_up = HangUp(raw.fileno())
    except OSError:  # an answer without a body has ended already
        return (lambda: None), raw.close

    def release() -> None:
        try:
            raw.close()
        finally:
            hang_up.release()

    return hang_up, release


def describe_failure(error: BaseException) -> str:
    """Return why there was no answer in few words, from the deepest error that has any."""
    chain = [error]
    while (cause := _cause(chain[-1])) is not None and cause not in chain:
        chain.append(cause)
    for each in reversed(chain):
        if verify := getattr(each, "verify_message", ""):  # ssl.SSLCertVerificationError
            return f"its certificate is not trusted: {verify}"
        if isinstance(each, OSError) and each.strerror:
            return each.strerror.lower()
        if isinstance(each, (TimeoutError, urllib3.exceptions.TimeoutError)):
            return "no answer in time"
        if isinstance(each, ConnectionError):  # without a number: http.client's own
            return "the connection was closed"
    return type(chain[-1]).__name__


def _cause(error: BaseException) -> BaseException | None:
    """Of the client's own error its context, which it hides; of others that may be what the caller was at before."""
    inner = [each for each in (*error.args, getattr(error, "reason", None)) if isinstance(each, BaseException)]
    if inner:
        return inner[0]
    return error.__context__ if isinstance(error, ApiException) else error.__cause__


def _with_token(document: Mapping[str, Any]) -> dict[str, Any]:
    """Read a token file here: the client takes it with its line break, which no header can hold."""
    users = []
    for each in document["users"]:
        user = dict(each["user"])
        if path := user.pop("tokenFile", ""):
            user["token"] = Path(path).read_text(encoding="utf-8").strip()
        users.append({**each, "user": user})
    return {**document, "users": users}


@contextlib.contextmanager
def _plugin_complaints() -> Iterator[list[str]]:
    """Collect what the client logs of an exec plugin that failed; it goes on without credentials."""
    complaints: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: complaints.append(record.getMessage())  # type: ignore[method-assign] # one-line handler
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield complaints
    finally:
        root.removeHandler(handler)
