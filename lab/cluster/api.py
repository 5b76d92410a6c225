"""Asks the API server for readiness and objects, and changes some, over HTTPS with a client certificate."""

from __future__ import annotations

import http.client
import json
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lab.cluster import certificates as names
from lab.cluster.errors import ClusterError

if TYPE_CHECKING:
    from lab.cluster.certificates import Certificates

TIMEOUT_S = 5.0
PATIENCE_S = 60.0  # of who cannot go on without the answer
OK, CREATED = 200, 201


@dataclass(frozen=True)
class Api:
    """The administrator's view of one API server."""

    address: str
    port: int
    certificates: Certificates

    def get(self, path: str) -> dict[str, Any] | None:
        """Return the object or list at ``path``; None if it does not exist, or the server does not answer."""
        answer = self._request(path)
        if answer is None:
            return None
        value: dict[str, Any] = json.loads(answer)
        return value

    def read(self, path: str) -> dict[str, Any]:
        """Return the object or list at ``path``, which is there; ``ClusterError`` if it is not.

        ``kubectl get`` takes a tenth of a second of CPU for the same.
        """
        answer = self._request(path, PATIENCE_S)
        if answer is None:
            raise ClusterError(f"{path} is not there, or {self.address}:{self.port} does not answer")
        value: dict[str, Any] = json.loads(answer)
        return value

    def create(self, path: str, body: dict[str, Any]) -> None:
        """Make an object in the list at ``path``, as ``kubectl create`` does; ``ClusterError`` if it is refused."""
        self._change("POST", f"{path}?fieldValidation=Strict", body, "application/json")

    def merge(self, path: str, body: dict[str, Any]) -> None:
        """Merge ``body`` into the object at ``path``, or into its status; ``ClusterError`` if it is refused."""
        self._change("PATCH", path, body, "application/merge-patch+json")

    def apply(self, path: str, body: dict[str, Any], manager: str) -> None:
        """Apply an object on the server's side as a manager of its fields; ``ClusterError`` if it is refused."""
        self._change(
            "PATCH", f"{path}?fieldManager={manager}&fieldValidation=Strict", body, "application/apply-patch+yaml"
        )

    def delete(self, path: str, **options: object) -> None:
        """Delete the object at ``path``, and do not wait until it has gone; ``ClusterError`` if it is not there.

        ``options`` are those of Kubernetes, such as ``gracePeriodSeconds``.
        """
        self._change("DELETE", path, options, "application/json")

    def is_ready(self) -> bool:
        """Whether the API server reports that it is ready."""
        return self._request("/readyz") == b"ok"

    def connection(self, timeout_s: float | None = TIMEOUT_S) -> http.client.HTTPSConnection:
        """Return a new connection, not yet open; without ``timeout_s`` it has no time limit, as watches need."""
        return http.client.HTTPSConnection(self.address, self.port, timeout=timeout_s, context=self._context())

    def _change(self, method: str, path: str, body: dict[str, Any], kind: str) -> None:
        connection = self.connection(PATIENCE_S)
        try:
            connection.request(method, path, json.dumps(body), {"Content-Type": kind})
            response = connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise ClusterError(f"{self.address}:{self.port} does not answer: {error}") from error
        finally:
            connection.close()
        if response.status not in {OK, CREATED}:
            raise ClusterError(f"{method} {path}: {json.loads(answer)['message']}")

    def _request(self, path: str, timeout_s: float = TIMEOUT_S) -> bytes | None:
        connection = self.connection(timeout_s)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        return body if response.status == OK else None

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.certificates.certificate("ca")))
        certificate, key = self.certificates.certificate(names.ADMIN), self.certificates.key(names.ADMIN)
        context.load_cert_chain(certificate, key)
        return context
