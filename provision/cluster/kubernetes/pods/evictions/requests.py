"""Asks pods to leave by EvictionRequests, where the cluster serves them and something acts on them.

A request is an object in the cluster: a process that goes on after another one was killed finds it there. It ends
with its pod; `settle` takes it back when the pod need not leave any more.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec

from provision.cluster.errors import ForbiddenError, RefusedError
from provision.cluster.kubernetes.api.client import CONFLICT, FORBIDDEN, NOT_FOUND
from provision.cluster.kubernetes.api.exchange import Request, StatusError
from provision.cluster.kubernetes.objects.core import Metadata
from provision.cluster.kubernetes.pods.evictions.objects import (
    API_VERSION,
    MANAGED_BY,
    MANAGER,
    OF_NODE,
    REQUESTER,
    ApiResources,
    EvictionRequest,
    Progress,
    Unanswered,
    UnderWay,
    read_answer,
    render_request,
)
from provision.rollout.interface.cluster import Eviction, EvictionOutcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from provision.cluster.kubernetes.api.client import Api
    from provision.cluster.kubernetes.pods.evictions.objects import PodKey
    from provision.rollout.model import GpuPod

_BASE: Final = f"/apis/{API_VERSION}"
_KIND: Final = "evictionrequests"
_REST_S: Final = 2.0  # between two looks: many pods are asked at a time
_NEW: Final = Metadata()
_REFUSALS: Final = (400, FORBIDDEN, NOT_FOUND, CONFLICT, 422)


class EvictionRequests:
    """``acting`` is for whatever changes something; without ``is_used``, nothing is ever asked.

    May be called by several threads.
    """

    def __init__(self, api: Api, acting: Api, *, is_used: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._acting, self._clock = api, acting, clock
        self._mutex = threading.Lock()
        self._is_used: bool | None = None if is_used else False  # None: not known yet
        self._looked: float | None = None
        self._mine: dict[PodKey, EvictionRequest] = {}
        self._progress: dict[PodKey, Progress] = {}
        self._given_up: set[str] = set()

    def ask(self, pod: GpuPod) -> Eviction | None:
        """Request the eviction of a pod, and say how it stands; None where the Eviction API is to be used."""
        try:
            with self._mutex:
                if not self._is_ready() or pod.uid in self._given_up:
                    return None
                self._look()
            key = (pod.namespace, pod.uid)
            request = self._mine.get(key) or self._create(pod)
            if request is None:
                return None
            answer = read_answer(request, self._progress.get(key), self._api.now())
            if isinstance(answer, UnderWay):
                return Eviction(outcome=EvictionOutcome.BLOCKED, reason=answer.reason)
            self._is_used = not isinstance(answer, Unanswered)
            self._given_up.add(pod.uid)
            self._take_back(key)
        except ForbiddenError:
            self._is_used = False
        return None

    def settle(self, is_wanted: Callable[[str], bool]) -> None:
        """Take back the requests for pods, by UID, that need not leave any more, those of earlier processes too."""
        with self._mutex:
            if self._is_used is False and not self._mine:
                return
            try:
                is_used = self._is_ready()
                if is_used and self._looked is None:
                    self._look()
                for key in [key for key in self._mine if not is_used or not is_wanted(key[1])]:
                    self._take_back(key)
            except ForbiddenError:
                self._is_used, self._mine = False, {}

    def begin(self) -> None:
        """Look again before anything is done: another process may have been at work since."""
        with self._mutex:
            self._looked = None

    def _is_ready(self) -> bool:
        if self._is_used is None:
            try:
                found = self._api.call(Request(method="GET", path=_BASE), ApiResources, expected=(NOT_FOUND, FORBIDDEN))
            except (StatusError, ForbiddenError):
                self._is_used = False
            else:
                self._is_used = any(each.name == _KIND for each in found.resources)
        return self._is_used

    def _look(self) -> None:
        now = self._clock()
        if self._looked is not None and now - self._looked < _REST_S:
            return
        mine = _list(self._api)
        self._mine = {each.about: each for each in mine}
        found = self._api.list_all(f"{_BASE}/evictions", Progress, labels=REQUESTER) if mine else []
        self._progress = {each.about: each for each in found}
        self._looked = now

    def _create(self, pod: GpuPod) -> EvictionRequest | None:
        """Return the request that is there now; None where none can be made for this pod."""
        path = f"{_BASE}/namespaces/{quote(pod.namespace, safe='')}/{_KIND}"
        request = Request(method="POST", path=path, body=render_request(pod))
        try:
            made = self._acting.call(request, EvictionRequest, expected=_REFUSALS)
        except StatusError as error:
            if error.code == CONFLICT:  # our own, whose answer was lost: the next look finds it
                self._looked = None
                return EvictionRequest(metadata=_NEW)
            self._given_up.add(pod.uid)
            return None
        self._mine[pod.namespace, pod.uid] = made
        return made

    def _take_back(self, key: PodKey) -> None:
        request = self._mine.pop(key, None)
        if request is not None:
            _delete(self._acting, request)


def take_back(api: Api, node: str) -> None:
    """Take back every request for pods of a node that is not upgraded any more.

    Where that is not possible, the next apply does it.
    """
    with contextlib.suppress(ForbiddenError, RefusedError):
        for request in requests_of(api, node):
            _delete(api, request)


def requests_of(api: Api, node: str) -> list[EvictionRequest]:
    """Return every request of ours for pods of a node, none where they cannot be read."""
    with contextlib.suppress(ForbiddenError, RefusedError):
        return [each for each in _list(api) if each.metadata.annotations.get(OF_NODE) == node]
    return []


def _list(api: Api) -> list[EvictionRequest]:
    found = api.list_all(f"{_BASE}/{_KIND}", EvictionRequest, labels=f"{MANAGED_BY}={MANAGER}")
    return [each for each in found if each.is_ours]


def _delete(api: Api, request: EvictionRequest) -> None:
    meta = request.metadata
    path = f"{_BASE}/namespaces/{quote(meta.namespace, safe='')}/{_KIND}/{quote(meta.name, safe='')}"
    with contextlib.suppress(StatusError):  # it has gone with its pod
        api.call(Request(method="DELETE", path=path), msgspec.Raw, expected=(NOT_FOUND,))
