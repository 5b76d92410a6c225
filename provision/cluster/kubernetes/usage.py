"""Asks which devices pods hold, and what nodes publish for claims, so seldom that it costs a large cluster little."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from provision.cluster.errors import ForbiddenError, RefusedError
from provision.cluster.kubernetes.api.exchange import StatusError
from provision.cluster.kubernetes.nodes.reported import users_of
from provision.cluster.kubernetes.objects.claims import ResourceClaim, ResourceSlice
from provision.cluster.kubernetes.objects.pods import Pod
from provision.cluster.kubernetes.pods.claims import served_path
from provision.cluster.kubernetes.pods.devices import DRIVER, rooms_of
from provision.cluster.kubernetes.watch.informer import ALIVE, FEW, PODS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from provision.cluster.kubernetes.api.client import Api
    from provision.rollout.errors import ClusterError
    from provision.rollout.status.reported import Room, User

EVERY_S: Final = 60.0  # between two lists of all pods; those of a few nodes are asked for each time


@dataclass(frozen=True, slots=True)
class Used:
    """The pods that hold devices, by the names of Nodes; ``unasked`` is why they could not be asked for.

    ``published`` are devices for claims, by Nodes and classes, None where that was not asked; ``unpublished`` is why it
    could.
    """

    users: Mapping[str, tuple[User, ...]]
    unasked: str = ""
    published: Mapping[str, Mapping[str, Room]] | None = None
    unpublished: str = ""


class Usage:
    """The pods of a cluster that hold devices; it belongs to one thread."""

    def __init__(self, api: Api, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._listed: float | None = None
        self._last = Used({})

    def of(self, nodes: Collection[str], publishing: Collection[str] = ()) -> Used:
        """Return what is known of Nodes, at most a minute old. Raises ClusterError where the server does not answer.

        Where there are any that may be ``publishing`` devices for claims, that is asked for as well.
        """
        now, is_few = self._clock(), len(nodes) <= FEW
        if is_few or self._listed is None or now - self._listed >= EVERY_S:
            self._last = self._ask(nodes if is_few else None, publishing)
            self._listed = None if is_few else now
        return self._last

    def _ask(self, nodes: Collection[str] | None, publishing: Collection[str]) -> Used:
        """Ask for the pods of these Nodes, each from an index of the API server; None: for all pods."""
        selectors = [ALIVE] if nodes is None else [f"spec.nodeName={name},{ALIVE}" for name in nodes]
        pods: dict[str, list[Pod]] = defaultdict(list)
        try:
            for selector in selectors:
                for pod in self._api.list_all(PODS, Pod, selector=selector):
                    pods[pod.spec.node_name].append(pod)
        except (ForbiddenError, RefusedError) as error:
            return Used({}, _why(error))
        claims: list[ResourceClaim] = []
        published, why = None, ""
        if publishing:
            try:
                published, claims = self._published(publishing if nodes is not None else [])
            except (ForbiddenError, RefusedError) as error:
                why = _why(error)
        known = {(each.metadata.namespace, each.metadata.name): each for each in claims}
        return Used({name: users_of(those, known) for name, those in pods.items()}, "", published, why)

    def _published(self, nodes: Collection[str]) -> tuple[dict[str, dict[str, Room]], list[ResourceClaim]]:
        """Return what these Nodes publish, or where none is named, all of them; and all claims, where there is any."""
        try:
            path = served_path(self._api)
        except StatusError:  # an API server without any
            return {}, []
        driver = f"spec.driver={DRIVER}"
        slices = [
            each
            for selector in [f"{driver},spec.nodeName={name}" for name in nodes] or [driver]
            for each in self._api.list_all(f"{path}/resourceslices", ResourceSlice, selector=selector)
        ]
        claims = self._api.list_all(f"{path}/resourceclaims", ResourceClaim) if slices else []
        return rooms_of(slices, claims), claims


def _why(error: ClusterError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message
