"""Asks which pods hold devices of nodes, so seldom that whoever watches a large cluster costs it little."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from provision.cluster.errors import ForbiddenError, RefusedError
from provision.cluster.kubernetes.nodes.reported import users_of
from provision.cluster.kubernetes.objects.pods import Pod
from provision.cluster.kubernetes.watch.informer import ALIVE, FEW, PODS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from provision.cluster.kubernetes.api.client import Api
    from provision.rollout.status.reported import User

EVERY_S: Final = 60.0  # between two lists of all pods; those of a few nodes are asked for each time


@dataclass(frozen=True, slots=True)
class Used:
    """The pods that hold devices, by the names of Nodes; ``unasked`` is why they could not be asked for."""

    users: Mapping[str, tuple[User, ...]]
    unasked: str = ""


class Usage:
    """The pods of a cluster that hold devices; it belongs to one thread."""

    def __init__(self, api: Api, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._listed: float | None = None
        self._last = Used({})

    def of(self, nodes: Collection[str]) -> Used:
        """Return what is known of Nodes, at most a minute old. Raises ClusterError where the server does not answer."""
        now, is_few = self._clock(), len(nodes) <= FEW
        if is_few or self._listed is None or now - self._listed >= EVERY_S:
            self._last = self._ask(nodes if is_few else None)
            self._listed = None if is_few else now
        return self._last

    def _ask(self, nodes: Collection[str] | None) -> Used:
        """Ask for the pods of these Nodes, each from an index of the API server; None: for all pods."""
        selectors = [ALIVE] if nodes is None else [f"spec.nodeName={name},{ALIVE}" for name in nodes]
        pods: dict[str, list[Pod]] = defaultdict(list)
        try:
            for selector in selectors:
                for pod in self._api.list_all(PODS, Pod, selector=selector):
                    pods[pod.spec.node_name].append(pod)
        except (ForbiddenError, RefusedError) as error:
            return Used({}, f"{error.message} ({error.hint})" if error.hint else error.message)
        return Used({name: users_of(those) for name, those in pods.items()})
