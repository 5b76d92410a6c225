"""Has Kubernetes itself end the pods with claims of a node: by a DeviceTaintRule with NoExecute on all of its GPUs.

A pod that tolerates the taint for a time has that time. Disruption budgets are not asked. The rule stays until the node
is back in service, so that no pod is given its GPUs; a process that goes on after another one was killed finds it, also
where something else is declared by then.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from provision.cluster.errors import ForbiddenError, RefusedError
from provision.cluster.kubernetes.api.client import CONFLICT, FORBIDDEN, NOT_FOUND
from provision.cluster.kubernetes.api.exchange import Request, StatusError
from provision.cluster.kubernetes.objects.core import ApiObject, Metadata
from provision.cluster.kubernetes.pods.evictions.objects import MANAGED_BY, MANAGER, ApiResources
from provision.cluster.kubernetes.pods.gpu_pods import DRIVER
from provision.cluster.kubernetes.pods.pod_rules import TAINT
from provision.rollout.interface.cluster import Eviction, EvictionOutcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from provision.cluster.kubernetes.api.client import Api
    from provision.rollout.model import GpuPod

_API_VERSION: Final = "resource.k8s.io/v1"  # from Kubernetes 1.37 on
_BASE: Final = f"/apis/{_API_VERSION}"
_KIND: Final = "devicetaintrules"
_LONGEST_NAME: Final = 253
_REST_S: Final = 15.0  # between two looks whether a rule is still there


class _Selector(ApiObject, frozen=True, kw_only=True):
    pool: str = ""


class _Spec(ApiObject, frozen=True, kw_only=True):
    device_selector: _Selector | None = None


class DeviceTaintRule(ApiObject, frozen=True, kw_only=True):
    """A DeviceTaintRule, as far as it is read."""

    metadata: Metadata
    spec: _Spec = _Spec()

    @property
    def node(self) -> str:
        """The node whose devices it is about: the pool of a node has its name."""
        return "" if self.spec.device_selector is None else self.spec.device_selector.pool


class DeviceTaints:
    """``acting`` is for whatever changes something; without ``is_used``, rules are only taken back.

    May be called by several threads.
    """

    def __init__(self, api: Api, acting: Api, *, is_used: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._acting, self._is_used, self._clock = api, acting, is_used, clock
        self._mutex = threading.Lock()
        self._is_served: bool | None = None  # None: not known yet
        self._tainted: dict[str, float] = {}  # nodes with a rule, and when it was seen to be there

    def ask(self, pod: GpuPod) -> Eviction | None:
        """Have a pod ended by its claims, and say how that stands; None where it is to be evicted as others are."""
        with self._mutex:
            if not self._ends(pod):
                return None
            seen = self._tainted.get(pod.node)
            if seen is None or self._clock() - seen >= _REST_S:  # it may have been deleted
                self._create(pod.node)
        time = f" ({pod.tolerates_s:g} s)" if pod.tolerates_s else ""
        reason = f"Kubernetes ends it by DeviceTaintRule {name_of(pod.node)}, once it tolerates {TAINT} no longer{time}"
        return Eviction(outcome=EvictionOutcome.BLOCKED, reason=reason)

    def ends(self, pod: GpuPod) -> bool:
        """Tell whether a pod would be ended so, whatever its disruption budgets say."""
        with self._mutex:
            return self._ends(pod)

    def settle(self, is_wanted: Callable[[str], bool]) -> None:
        """Take back the rules of nodes that are in service, those of processes before too.

        To be called while no other process is at work: it may have made one since its node was seen.
        """
        with self._mutex:
            for rule in rules(self._api) if self._is_ready() else ():
                if rule.node and not is_wanted(rule.node):
                    self._delete(rule.node)
                elif rule.node:
                    self._tainted[rule.node] = self._clock()

    def end(self, node: str) -> None:
        """Take back the rule of a node that goes back into service."""
        with self._mutex:
            if node in self._tainted or (self._is_used and self._is_ready()):
                self._delete(node)

    def _ends(self, pod: GpuPod) -> bool:
        return pod.is_by_claims and self._is_used and self._is_ready()

    def _is_ready(self) -> bool:
        if self._is_served is None:
            try:
                found = self._api.call(Request(method="GET", path=_BASE), ApiResources, expected=(NOT_FOUND, FORBIDDEN))
            except (StatusError, ForbiddenError):
                self._is_served = False
            else:
                self._is_served = any(each.name == _KIND for each in found.resources)
        return self._is_served

    def _create(self, node: str) -> None:
        request = Request(method="POST", path=f"{_BASE}/{_KIND}", body=render_rule(node))
        with contextlib.suppress(StatusError):  # it is there: ours, of a process that was killed
            self._acting.call(request, msgspec.Raw, expected=(CONFLICT,))
        self._tainted[node] = self._clock()

    def _delete(self, node: str) -> None:
        delete_rule(self._acting, node)
        self._tainted.pop(node, None)


def name_of(node: str) -> str:
    """Return the name of a node's rule."""
    name = f"grapnel-upgrade-{node}"
    return name if len(name) <= _LONGEST_NAME else f"grapnel-upgrade-{hashlib.sha256(node.encode()).hexdigest()}"


def render_rule(node: str) -> dict[str, Any]:
    """Return the rule that ends the pods with GPUs of a node by claims."""
    return {
        "apiVersion": _API_VERSION,
        "kind": "DeviceTaintRule",
        "metadata": {"name": name_of(node), "labels": {MANAGED_BY: MANAGER}},
        "spec": {
            "deviceSelector": {"driver": DRIVER, "pool": node},
            "taint": {"key": TAINT, "effect": "NoExecute"},
        },
    }


def rules(api: Api) -> list[DeviceTaintRule]:
    """Return every rule of ours, none where they cannot be read."""
    with contextlib.suppress(ForbiddenError, RefusedError, StatusError):
        return api.list_all(f"{_BASE}/{_KIND}", DeviceTaintRule, labels=f"{MANAGED_BY}={MANAGER}")
    return []


def delete_rule(api: Api, node: str) -> None:
    """Delete the rule of a node; one that is not there is as good."""
    path = f"{_BASE}/{_KIND}/{quote(name_of(node), safe='')}"
    with contextlib.suppress(StatusError):
        api.call(Request(method="DELETE", path=path), msgspec.Raw, expected=(NOT_FOUND,))


def take_back(api: Api, node: str) -> None:
    """Delete the rule of a node that is not upgraded any more; where that is not possible, the next apply does it."""
    with contextlib.suppress(ForbiddenError, RefusedError):
        if any(rule.node == node for rule in rules(api)):
            delete_rule(api, node)
