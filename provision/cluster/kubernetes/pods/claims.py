"""Says what a pod's ResourceClaims were given: whether a pod has a GPU by dynamic resource allocation."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from provision.cluster.errors import ForbiddenError, RefusedError
from provision.cluster.kubernetes.api.client import NOT_FOUND
from provision.cluster.kubernetes.api.exchange import Request, StatusError
from provision.cluster.kubernetes.objects.claims import ResourceClaim
from provision.cluster.kubernetes.objects.core import ApiGroup
from provision.cluster.kubernetes.pods.gpu_pods import Given, given_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from provision.cluster.kubernetes.api.client import Api

_GROUP: Final = "/apis/resource.k8s.io"
_REST_S: Final = 2.0  # between two lists: pods whose claims are still to be allocated ask again and again


class ClaimReader:
    """Lists claims when a pod has one that is not known; clusters without any are never asked.

    An allocation lasts as long as the pods that it was made for. One that was made since the last list, of a pod that
    has just come to its node, is asked for by itself: it is never taken for none. May be called by several threads.
    """

    def __init__(self, api: Api, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._mutex = threading.Lock()
        self._known: dict[tuple[str, str], Given] = {}
        self._listed: float | None = None
        self._path: str | None = None
        self._is_blind = False

    def given(self, namespace: str, name: str) -> Given | None:
        """Return what a claim was given, nothing while it is not allocated; None where claims cannot be read."""
        with self._mutex:
            known = self._known.get((namespace, name))
            if known is not None and known.drivers:
                return known
            if not self._is_blind:
                self._look(namespace, name)
            return None if self._is_blind else self._known.get((namespace, name), Given())

    def _look(self, namespace: str, name: str) -> None:
        """Look at all claims, or shortly after that at the one alone."""
        now = self._clock()
        is_due = self._listed is None or now - self._listed >= _REST_S
        folder = "" if is_due else f"/namespaces/{quote(namespace, safe='')}"
        selector = "" if is_due else f"metadata.name={name}"
        try:
            self._path = self._path or served_path(self._api)
            claims = self._api.list_all(f"{self._path}{folder}/resourceclaims", ResourceClaim, selector=selector)
        except (StatusError, ForbiddenError, RefusedError):
            self._is_blind = True
            return
        found = {(claim.metadata.namespace, claim.metadata.name): given_of(claim) for claim in claims}
        self._known = found if is_due else {**self._known, **found}
        self._listed = now if is_due else self._listed


def served_path(api: Api) -> str:
    """Return the path of the version that the API server prefers. Raises StatusError where it serves none."""
    group = api.call(Request(method="GET", path=_GROUP), ApiGroup, expected=(NOT_FOUND,))
    return f"/apis/{group.preferred_version.group_version}"
