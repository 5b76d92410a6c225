"""This node's Node object: what was observed in, conditions, events and labels out.

Not here: the API (`reporter`), and where labels come from.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from plugin.publication.node_object.conditions import bounded, conditions_of, drift_condition, with_changes
from plugin.publication.node_object.label_owners import PREFIX, usable_labels
from plugin.publication.node_object.model import Eviction, NodeFeature, Note
from plugin.publication.node_object.notes import notes_of
from plugin.publication.node_object.reporter import Reporter
from plugin.publication.node_object.session import utc_now

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plugin.base.log import Logger
    from plugin.devices.observer import Observation
    from plugin.drift.result import Result
    from plugin.publication.node_object.model import Condition
    from plugin.sharing.overuse.keeper import Pod


class FeatureSets(Protocol):
    """What rules of Node Feature Discovery can ask for."""

    @property
    def attributes(self) -> Mapping[str, Mapping[str, str]]:
        """Values by feature and name."""

    @property
    def instances(self) -> Mapping[str, tuple[Mapping[str, str], ...]]:
        """The same for each instance of a feature."""


class ClusterNode:
    """Turns states of the node into what is said of them. Of one thread; no call waits, but `close`."""

    def __init__(self, reporter: Reporter, logger: Logger, utc: Callable[[], str] = utc_now) -> None:
        self._reporter = reporter
        self._log = logger
        self._utc = utc
        self._before: tuple[Observation, str] | None = None
        self._observed: tuple[Condition, ...] = ()
        self._compared: tuple[Condition, ...] = ()
        self._conditions: tuple[Condition, ...] = ()
        self._feature: NodeFeature | None = None

    def show(self, observation: Observation, released: str = "") -> None:
        """Take a state of the node. Of the first one only what happened in it becomes an event."""
        before, was_released = self._before or (observation, released)
        self._before = (observation, released)
        self._observed = conditions_of(observation, released)
        self._show()
        self._reporter.note(tuple(notes_of(before, was_released, observation, released)))

    def compare(self, result: Result) -> None:
        """Take what came of a comparison of the node with its declaration."""
        self._compared = (drift_condition(result),)
        self._show()

    def _show(self) -> None:
        self._conditions = with_changes(self._conditions, (*self._observed, *self._compared), self._utc())
        self._reporter.show(self._conditions)

    def label(self, labels: Mapping[str, str]) -> None:
        """Take the labels; what the API would refuse is left out, and told."""
        self._reporter.label(self._usable(labels))

    def _usable(self, labels: Mapping[str, str]) -> dict[str, str]:
        usable, unusable = usable_labels(labels)
        problem = f"labels that cannot be applied: {', '.join(unusable)[:256]}" if unusable else ""
        hint = {"hint": f"they must begin with {PREFIX}, and say what a label may"} if problem else {}
        self._log.standing("labels of the node", problem, **hint)
        return usable

    def feature(self, namespace: str, labels: Mapping[str, str], features: FeatureSets | None) -> None:
        """Take what a NodeFeature object is to say; namespace "": the one of before is to say nothing any more."""
        if namespace and features is not None:
            self._feature = NodeFeature(namespace, self._usable(labels), features.attributes, features.instances)
        elif namespace:
            self._feature = NodeFeature(namespace)
        elif self._feature is not None:
            self._feature = NodeFeature(self._feature.namespace)
        if self._feature is not None:
            self._reporter.feature(self._feature)

    def tell(self, reason: str, message: str, subject: str, *, is_warning: bool) -> None:
        """Make an event of the Node."""
        self._reporter.note((Note(is_warning, reason, bounded(message), subject),))

    def evict(self, pods: tuple[Pod, ...]) -> None:
        """Have these pods evicted, each once, and no others any more."""
        self._reporter.evict(tuple(Eviction(each.namespace, each.name, each.uid, each.why) for each in pods))

    def annotate(self, annotations: Mapping[str, str | None]) -> None:
        """Take annotations that the Node is to carry beside all others, None for one that is to go."""
        self._reporter.annotate(annotations)

    def close(self) -> None:
        """Say what is due, and end. The conditions stay: their heartbeat tells that they are not kept any more."""
        if not self._reporter.close():
            self._log.warning("the Kubernetes API does not answer: the last events may be missing there")


def open_node(source: str, name: str, logger: Logger) -> ClusterNode:
    """Return a node object whose reporter runs. `source` is `kubernetesApi` of node.json."""
    reporter = Reporter(name, source, os.environ, logger)
    reporter.start()
    return ClusterNode(reporter, logger)
