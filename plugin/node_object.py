"""What the daemon says of itself on its Node object: nothing, unless node.json names a way to the Kubernetes API.

The seam before `plugin.cluster`, which is imported only then, and after the first GPUs were shown.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugin.config import NodeConfig
    from plugin.log import Journal
    from plugin.observer import Observation


class NodeObject(Protocol):
    """Somebody who keeps the Node up to date; every call returns at once, but for `close`."""

    def show(self, observation: Observation, released: str = "") -> None:
        """Take what was observed; `released` is why the node is released, "" while it is not."""

    def label(self, labels: Mapping[str, str]) -> None:
        """Take all labels that the Node is to have of ours (`nvidia.com/…`)."""

    def close(self) -> None:
        """Say what is due, within two seconds, and end."""


class NoNodeObject:
    """Where nobody asked for it."""

    def show(self, observation: Observation, released: str = "") -> None:
        """Nothing is said."""

    def label(self, labels: Mapping[str, str]) -> None:
        """Nothing is said."""

    def close(self) -> None:
        """There is nothing to end."""


def node_name(config: NodeConfig, environment: Mapping[str, str]) -> str:
    """Return the Node's name: node.json, NODE_NAME, or the host's as the kubelet takes it (in small letters)."""
    return config.node_name or environment.get("NODE_NAME", "") or os.uname().nodename.strip().lower()


class LazyNodeObject:
    """Imports `plugin.cluster` at the first thing there is to say. Used in the event loop's thread."""

    def __init__(self, config: NodeConfig, journal: Journal) -> None:
        self._config = config
        self._journal = journal
        self._node: NodeObject | None = None

    def _opened(self) -> NodeObject:
        if self._node is None:
            from plugin.cluster.node import open_node  # noqa: PLC0415 - nothing of it is loaded where it is off

            config = self._config
            self._node = open_node(config.kubernetes_api, node_name(config, os.environ), self._journal)
        return self._node

    def show(self, observation: Observation, released: str = "") -> None:
        """Hand it on."""
        self._opened().show(observation, released)

    def label(self, labels: Mapping[str, str]) -> None:
        """Hand it on."""
        self._opened().label(labels)

    def close(self) -> None:
        """End it, if it ever began."""
        if self._node is not None:
            self._node.close()


def node_object(config: NodeConfig, journal: Journal) -> NodeObject:
    """Return who keeps the Node up to date."""
    return LazyNodeObject(config, journal) if config.kubernetes_api else NoNodeObject()
