"""What the daemon says of itself on its Node object: nothing, unless node.json says how to reach the Kubernetes API.

In front of `plugin.publication.node_object`, which is imported only then, and after the first GPUs were shown.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plugin.base.log import Logger
    from plugin.devices.observer import Observation
    from plugin.drift.result import Result
    from plugin.publication.labels.features import Features
    from plugin.settings.node_config import NodeConfig
    from plugin.sharing.overuse.keeper import Pod


_AFTER_START_S = 1.0


class NodeObject(Protocol):
    """Keeps the Node up to date; every call returns at once, but for `close`."""

    def show(self, observation: Observation, released: str = "") -> None:
        """Take what was observed; `released` is why the node is released, "" while it is not."""

    def compare(self, result: Result) -> None:
        """Take what came of a comparison of the node with its declaration."""

    def label(self, labels: Mapping[str, str]) -> None:
        """Take all labels that the Node is to have of ours (`nvidia.com/…`)."""

    def feature(self, namespace: str, labels: Mapping[str, str], features: Features | None) -> None:
        """Take what a NodeFeature object is to say; namespace "": there is to be none any more."""

    def tell(self, reason: str, message: str, subject: str, *, is_warning: bool) -> None:
        """Make an event of the Node; `subject` is the GPU."""

    def evict(self, pods: tuple[Pod, ...]) -> None:
        """Have these pods evicted, each once, and no others any more."""

    def annotate(self, annotations: Mapping[str, str | None]) -> None:
        """Take annotations that the Node is to carry beside all others, None for one that is to go."""

    def close(self) -> None:
        """Say what is due, within two seconds, and end."""


class NoNodeObject:
    """Where node.json does not ask for it."""

    def show(self, observation: Observation, released: str = "") -> None:
        """Nothing is said."""

    def compare(self, result: Result) -> None:
        """Nothing is said."""

    def label(self, labels: Mapping[str, str]) -> None:
        """Nothing is said."""

    def feature(self, namespace: str, labels: Mapping[str, str], features: Features | None) -> None:
        """Nothing is said."""

    def tell(self, reason: str, message: str, subject: str, *, is_warning: bool) -> None:
        """Nothing is said."""

    def evict(self, pods: tuple[Pod, ...]) -> None:
        """Nothing is asked for."""

    def annotate(self, annotations: Mapping[str, str | None]) -> None:
        """Nothing is said."""

    def close(self) -> None:
        """There is nothing to end."""


def node_name(config: NodeConfig, environment: Mapping[str, str]) -> str:
    """Return the Node's name: node.json, NODE_NAME, or the host's as the kubelet takes it (in small letters)."""
    return config.node_name or environment.get("NODE_NAME", "") or os.uname().nodename.strip().lower()


class LazyNodeObject:
    """Imports `node_object` a second after there is something to say. Used in the event loop's thread."""

    def __init__(self, config: NodeConfig, logger: Logger) -> None:
        self._config = config
        self._log = logger
        self._node: NodeObject = NoNodeObject()
        self._waiting: list[Callable[[NodeObject], None]] | None = []  # what a second brings; None: it is over

    def show(self, observation: Observation, released: str = "") -> None:
        """Hand it on."""
        self._hand_on(lambda node: node.show(observation, released))

    def compare(self, result: Result) -> None:
        """Hand it on."""
        self._hand_on(lambda node: node.compare(result))

    def label(self, labels: Mapping[str, str]) -> None:
        """Hand it on."""
        self._hand_on(lambda node: node.label(labels))

    def feature(self, namespace: str, labels: Mapping[str, str], features: Features | None) -> None:
        """Hand it on."""
        self._hand_on(lambda node: node.feature(namespace, labels, features))

    def tell(self, reason: str, message: str, subject: str, *, is_warning: bool) -> None:
        """Hand it on."""
        self._hand_on(lambda node: node.tell(reason, message, subject, is_warning=is_warning))

    def evict(self, pods: tuple[Pod, ...]) -> None:
        """Hand them on."""
        self._hand_on(lambda node: node.evict(pods))

    def annotate(self, annotations: Mapping[str, str | None]) -> None:
        """Hand them on."""
        self._hand_on(lambda node: node.annotate(annotations))

    def _hand_on(self, call: Callable[[NodeObject], None]) -> None:
        if self._waiting is None:
            call(self._node)
            return
        if not self._waiting:
            asyncio.get_running_loop().call_later(_AFTER_START_S, self._open)
        self._waiting.append(call)

    def _open(self) -> None:
        if self._waiting is None:
            return  # it was closed within the second
        from plugin.publication.node_object.node import open_node

        config = self._config
        self._node = open_node(config.kubernetes_api, node_name(config, os.environ), self._log)
        waiting, self._waiting = self._waiting, None
        for call in waiting:
            call(self._node)

    def close(self) -> None:
        """End it, if it ever began. In any thread: the event loop's must call nothing else any more."""
        self._waiting = None
        self._node.close()


def node_object(config: NodeConfig, logger: Logger) -> NodeObject:
    """Return who keeps the Node up to date."""
    return LazyNodeObject(config, logger) if config.kubernetes_api else NoNodeObject()


class OwnNode:
    """The Node of this machine, whichever the configuration says that it is."""

    def __init__(self, config: NodeConfig, logger: Logger) -> None:
        self._config = config
        self._log = logger
        self._node = node_object(config, logger)
        self._labels: Mapping[str, str] | None = None  # the last ones
        self._feature: tuple[str, Mapping[str, str], Features | None] | None = None
        self._annotations: dict[str, str | None] = {}
        self._result: Result | None = None

    def show(self, observation: Observation, released: str = "") -> None:
        """Hand it on."""
        self._node.show(observation, released)

    def compare(self, result: Result) -> None:
        """Hand it on, and to whichever Node comes next."""
        self._result = result
        self._node.compare(result)

    def label(self, labels: Mapping[str, str]) -> None:
        """Hand them on, and to whichever Node comes next."""
        self._labels = labels
        self._node.label(labels)

    def feature(self, namespace: str, labels: Mapping[str, str], features: Features | None) -> None:
        """Hand it on, and to whichever Node comes next."""
        self._feature = (namespace, labels, features)
        self._node.feature(*self._feature)

    def tell(self, reason: str, message: str, subject: str, *, is_warning: bool) -> None:
        """Hand it on."""
        self._node.tell(reason, message, subject, is_warning=is_warning)

    def evict(self, pods: tuple[Pod, ...]) -> None:
        """Hand them on; they are measured again for whichever Node comes next."""
        self._node.evict(pods)

    def annotate(self, annotations: Mapping[str, str | None]) -> None:
        """Hand them on, and to whichever Node comes next."""
        self._annotations.update(annotations)
        self._node.annotate(annotations)

    async def move(self, config: NodeConfig) -> None:
        """Take the Node that this configuration names from now on; it gets the labels, and what is shown next."""
        before, self._config = self._config, config
        if (before.kubernetes_api, before.node_name) == (config.kubernetes_api, config.node_name):
            return
        await asyncio.to_thread(self.close)
        self._node = node_object(config, self._log)
        if self._result is not None:
            self._node.compare(self._result)
        if self._labels is not None:
            self._node.label(self._labels)
        if self._feature is not None:
            self._node.feature(*self._feature)
        if self._annotations:
            self._node.annotate(self._annotations)

    def close(self) -> None:
        """End it; takes up to two seconds. In any thread."""
        self._node.close()
