"""Keeps the node's ResourceSlices as they have to be, in threads of its own: one writes, one hears of others' changes.

The kubelet deletes all slices of its node when it starts, and those of a driver that was away for 30 s; anybody with
the right can. A watch of the node's own slices tells at once, so nothing is asked in turns.
"""

from __future__ import annotations

import json
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from plugin.base.errors import ClusterError
from plugin.dra.cluster_api import ClusterApi
from plugin.dra.devices import DRIVER
from plugin.dra.slices import (
    ALL_FEATURES,
    Owner,
    foreign_writes,
    has_counters,
    is_ours,
    kept_features,
    list_slices,
    mark_of,
    plan_writes,
    request_of,
)
from plugin.publication.node_object.answers import CONFLICT, FORBIDDEN, INVALID, NOT_FOUND, node_state
from plugin.publication.node_object.api.budget import Backoff
from plugin.publication.node_object.requests import read_node
from plugin.settings.node_config import IN_CLUSTER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plugin.base.log import Logger
    from plugin.dra.devices import DraDevice, Features
    from plugin.dra.slices import Write

    Json = dict[str, Any]

_POLICY = "apply deploy/rbac/node-claims.yaml, whose policy does; of the chart: nodeDaemon.claims.enabled: true"
_HINT = "nodes may write their own slices from Kubernetes 1.34 on; it is tried again"
WATCH_S = 600  # and up to a half more
_LONG_S = 30  # a watch that lasted so long was one: what ends sooner is begun again later each time
_MOST_ROUNDS = 5  # of writes that others overtook, until it waits
_LOOK_S = 0.5  # whether a kubelet has come


def _new_mark() -> str:
    return os.urandom(4).hex()


def _chance() -> float:
    return int.from_bytes(os.urandom(4), "big") / 2**32


class SliceKeeper:
    """Of one node and driver. Calls return at once; they are of one thread.

    While `is_registered` is False, which is asked in any thread, nothing is offered that is not offered already: a pod
    that comes to a node whose kubelet does not know the driver waits for a minute and a half. Nor is anything offered
    by a pod whose account may write slices of other nodes.
    """

    def __init__(
        self,
        node: str,
        source: str,
        environment: Mapping[str, str],
        is_registered: Callable[[], bool],
        logger: Logger,
        *,
        driver: str = DRIVER,
    ) -> None:
        self._node = node
        self._is_pods = source == IN_CLUSTER
        self._driver = driver
        self._topic = f"resource slices of {driver}"
        self._watch_topic = f"{self._topic}: watch"
        self._is_registered = is_registered
        self._api = ClusterApi(source, environment)
        self._watch_api = ClusterApi(source, environment)
        self._log = logger
        self._wanted: tuple[DraDevice, ...] | None = None
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._is_ended = threading.Event()
        self._is_settled = threading.Event()  # what is wanted is what there is, as far as is known
        self._owner: Owner | None = None
        self._mark = ""  # of names of slices, once others have taken those without it
        self._taken: set[str] = set()  # names of slices that could not be made, as there is one
        self._is_held = not self._is_pods  # to slices of its node; that a pod's account is, an answer has to show
        self._problem = ""
        self._versions: dict[str, str] = {}  # of each slice, as it was written or listed last
        self._writing = threading.Lock()  # until an answer is known: the watch may tell of a write before that
        self.features = ALL_FEATURES  # as far as an answer has shown
        self._threads: tuple[threading.Thread, ...] = ()

    def publish(self, devices: tuple[DraDevice, ...]) -> None:
        """Have the slices say this from now on; nothing at all where there are no devices."""
        with self._lock:
            if devices == self._wanted:
                return
            self._wanted = devices
            self._is_settled.clear()
        if not self._threads:
            # Daemon threads: an API server that hangs must not keep the process from ending.
            self._threads = (
                threading.Thread(target=self._write, name="slices", daemon=True),
                threading.Thread(target=self._watch, name="slices-watch", daemon=True),
            )
            for thread in self._threads:
                thread.start()
        self._wake.set()

    def check(self) -> None:
        """Compare what there is with what there has to be: a kubelet has come, maybe of an upgraded cluster."""
        self._versions, self._owner, self.features, self._is_held = {}, None, ALL_FEATURES, not self._is_pods
        self._wake.set()

    @property
    def is_settled(self) -> bool:
        """Whether what was published last is what the API has."""
        return self._is_settled.is_set()

    @property
    def problem(self) -> str:
        """Why what was published last is not what the API has; "" where it is."""
        return "" if self.is_settled else self._problem or "the slices that the API has are not what there is yet"

    def close(self) -> None:
        """End. The slices stay: whoever is next takes them over, else the kubelet deletes them after 30 s."""
        self._is_ended.set()
        self._wake.set()

    def _write(self) -> None:
        backoff = Backoff(_chance)
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._is_ended.is_set():
                self._api.close()
                return
            wait_s = self._attempt(self._topic, self._reconcile)
            if wait_s is None:
                backoff.succeeded()
                self._problem = ""
                self._log.standing(self._topic)
            else:
                self._wait(backoff, wait_s)
                self._wake.set()

    def _attempt(self, topic: str, work: Callable[[], None]) -> float | None:
        """Return None where it went well, else the least time in seconds until it may be tried again."""
        try:
            work()
        except ClusterError as error:
            if not self._is_ended.is_set():
                hint = error.hint or _HINT
                self._problem = f"{error.message} ({hint})" if topic == self._topic else self._problem
                self._log.standing(topic, error.message, hint=hint)
            return error.retry_after_s
        except Exception as error:  # noqa: BLE001 - a bug here must not end the thread
            self._log.standing(topic, f"bug: {error!r:.256}", hint="please report it")
            return 0.0
        return None

    def _wait(self, backoff: Backoff, at_least_s: float) -> None:
        backoff.failed(time.monotonic(), at_least_s)
        self._is_ended.wait(max(0.0, backoff.until_s - time.monotonic()))

    def _reconcile(self) -> None:
        for _ in range(_MOST_ROUNDS):
            with self._lock:
                wanted = self._wanted
            if wanted is None:
                return
            if wanted and not self._is_registered():
                self._is_ended.wait(_LOOK_S)
                self._wake.set()
                return
            if (owner := self._owner) is None:
                uid = node_state(self._api.ask(read_node(self._node))).uid
                self._owner = owner = Owner(self._node, uid, self._driver, self._mark)
            found = self._list()
            if mark := self._find_mark(owner, found):
                self._owner = owner = owner._replace(mark=mark)
            if wanted and not self._is_held:
                self._check_held()
            writes = plan_writes(owner, wanted, found, self.features)
            if self._make(writes):
                with self._lock:
                    if wanted == self._wanted:
                        self._is_settled.set()
                        return
        raise ClusterError("the slices are changed by others as fast as they are written", "is there a second driver?")

    def _find_mark(self, owner: Owner, found: list[Json]) -> str:
        """Return the mark that names are to have: that of before, or a new one where others have any of them."""
        taken = self._taken.difference(each["metadata"]["name"] for each in found)
        self._taken = set()
        if taken:
            name = min(taken)
            hint = f"see `kubectl get resourceslice {name}`; this node's have other names from now on"
            self._log.warning(f"the resource slice {name} is another node's, or driver's", hint=hint)
        self._mark = _new_mark() if taken else self._mark or mark_of(owner, found)
        return self._mark

    def _check_held(self) -> None:
        """Raise ClusterError where this pod's account may write slices of other nodes: root of any node may use it."""
        for words, request in foreign_writes(self._node):
            try:
                self._api.ask(request)
            except ClusterError as error:
                if error.status != FORBIDDEN:  # INVALID comes before any policy is asked
                    raise
            else:
                raise ClusterError(f"nothing keeps this pod's account from slices {words}: none is written", _POLICY)
        self._is_held = True

    def _list(self) -> list[Json]:
        items = self._api.ask(list_slices(self._node)).get("items") or ()
        found = [each for each in items if isinstance(each, dict) and is_ours(each, self._node, self._driver)]
        self._versions = {each["metadata"]["name"]: each["metadata"].get("resourceVersion", "") for each in found}
        return found

    def _make(self, writes: tuple[Write, ...]) -> bool:
        """Make the writes; False: another look is needed."""
        for write in writes:
            try:
                with self._writing:
                    answer = self._api.ask(request_of(write))
                    self._note(write, answer)
            except ClusterError as error:
                if error.status == FORBIDDEN:
                    self._is_held = not self._is_pods  # it was the right that was missing, and not the policy's word
                if error.status == CONFLICT and write.is_new:
                    self._taken.add(write.name)
                if error.status in (CONFLICT, NOT_FOUND):
                    self._owner = None if error.status == NOT_FOUND else self._owner
                    return False
                if error.status != INVALID or not has_counters(write):
                    raise
                self._drop(self.features._replace(counters=False))  # 1.34 wants them beside their devices
                return False
            if write.document is None:
                continue
            kept = kept_features(self.features, write.document, answer)
            if kept != self.features:
                self._drop(kept)
                return False
        return True

    def _note(self, write: Write, answer: Json) -> None:
        """Know the version that a slice has after a write, so that the watch tells nothing new of it."""
        if write.document is None:
            self._versions.pop(write.name, None)
        else:
            self._versions[write.name] = answer["metadata"].get("resourceVersion", "")

    def _drop(self, kept: Features) -> None:
        """Go on without what the API does not have."""
        self.features = kept
        told = {"taints": kept.taints, "shares": kept.shares, "partitions": kept.counters}
        self._log.info("this Kubernetes drops fields of devices", **told)

    def _watch(self) -> None:
        backoff = Backoff(_chance)
        while not self._is_ended.is_set():
            began = time.monotonic()
            at_least_s = self._attempt(self._watch_topic, self._follow) or 0.0
            if time.monotonic() - began > _LONG_S:
                backoff.succeeded()
            self._wait(backoff, at_least_s)  # also after an end without a fault: the next one may end at once

    def _follow(self) -> None:
        self._watch_api.follow(list_slices(self._node, watch_s=int(WATCH_S * (1 + _chance() / 2))), self._hear)

    def _hear(self, line: bytes) -> None:
        if self._is_ended.is_set():
            raise ClusterError("nobody listens any more")
        if not line:
            self._log.standing(self._watch_topic)
            self._wake.set()  # the watch begins: what happened before is in no line of it
            return
        try:
            event = json.loads(line)
            what, found = event["type"], event["object"]
            if what == "ERROR":
                raise ClusterError(f"the api server ends the watch of slices: {str(found.get('message'))[:200]}")
            metadata = found["metadata"]
            if what == "BOOKMARK" or not is_ours(found, self._node, self._driver):
                return
            with self._writing:
                is_known = self._versions.get(metadata["name"]) == metadata["resourceVersion"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ClusterError("the api server tells of slices in no form that is known") from error
        if what == "DELETED":
            self._owner = None  # a Node that was made anew has another UID: slices with the old one are deleted again
        if what == "DELETED" or not is_known:
            self._wake.set()
