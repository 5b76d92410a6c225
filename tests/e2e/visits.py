"""Every visitor on every node at once: what each saw, and the configuration that its container was started with.

Those that find no free GPU wait for others to go, as in life. Whoever has looked around is sent away.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kubernetes.client.exceptions import ApiException

from tests.e2e.manifests import LOOKED
from tests.e2e.sight import Sight, parse_sight
from tests.e2e.visitors import VISITORS
from tests.e2e.waiting import wait_for

if TYPE_CHECKING:
    from tests.e2e.room import Room
    from tests.e2e.stage import GpuNode

TIMEOUT_S = 180.0


@dataclass(frozen=True)
class Visit:
    """One visitor on one node; ``config`` is its ``config.json`` where the node may be looked into."""

    node: GpuNode
    sight: Sight
    container_id: str
    config: dict[str, Any] = field(repr=False)


class Visits:
    """Runs all visitors, and keeps what they saw."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._nodes = {node.name: node for node in room.stage.nodes}
        self._titles: dict[str, tuple[str, str]] = {}
        self._found: dict[tuple[str, str], Visit] = {}
        self._evidence = ""

    def receive(self) -> None:
        """Make all pods, take in what each saw, and let none stay: others need the GPUs."""
        for number, (title, visitor) in enumerate(VISITORS.items()):
            for place, node in enumerate(self._nodes):
                name = f"visitor-{number}-{place}"
                self._titles[name] = (title, node)
                self._room.start(visitor.make(name, node))
        try:
            wait_for("all visitors have looked around", self._is_complete, timeout_s=TIMEOUT_S)
        except AssertionError:  # told by the tests of those that are missing
            self._evidence = self._room.evidence()
        self._room.clear()

    def of(self, title: str) -> list[Visit]:
        """Return a visitor's visits to all nodes."""
        found = [self._found.get((title, node)) for node in self._nodes]
        assert None not in found, f"{title}: did not look around within {TIMEOUT_S:g} s\n{self._evidence}"
        return [visit for visit in found if visit is not None]

    def _is_complete(self) -> bool:
        self._collect()
        return len(self._found) == len(self._titles)

    def _collect(self) -> None:
        """Collect the visitors that have finished since the last call."""
        for pod in self._room.api.pods(self._room.name):
            key = self._titles[pod.metadata.name]
            if key in self._found or pod.metadata.deletion_timestamp is not None:
                continue
            visit = self._visit(pod, *key)
            if visit is not None:
                self._found[key] = visit
                self._room.api.delete_pod(self._room.name, pod.metadata.name)

    def _visit(self, pod: Any, title: str, node_name: str) -> Visit | None:
        looks, node = VISITORS[title].looks, self._nodes[node_name]
        statuses = (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))
        running = {each.name: each for each in statuses if each.state.running}
        if looks not in running:
            return None
        log = ""
        with suppress(ApiException):  # it has only just started
            log = self._room.api.log(self._room.name, pod.metadata.name, looks)
        if LOOKED not in log.splitlines():
            return None
        container_id = running[looks].container_id.rpartition("/")[2]
        config = node.lab.container_config(container_id) if node.lab else {}
        return Visit(node, parse_sight(log), container_id, config)
