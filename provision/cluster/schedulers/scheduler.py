"""Defines what is asked of a scheduler other than Kubernetes: Slurm, or the programs of a site."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provision.rollout.interface.cluster import NodeProblem
    from provision.rollout.model import Job, NodeView


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerNode:
    """What a scheduler says of a node.

    ``is_drained``: it gets no new work; ``is_ours``: because grapnel said so. ``jobs`` are what still runs on it.
    ``why_not_ready`` is empty for a node that could work. ``held_by`` is why others hold it, with what ends it.
    ``is_remembered``: that it is drained is only known from the state file, which knows of a drain before it is done.
    ``registered`` is another text whenever the node has registered after a start; empty where nodes do not register.
    """

    is_drained: bool = False
    is_ours: bool = False
    jobs: tuple[Job, ...] = ()
    why_not_ready: str = ""
    held_by: str = ""
    is_remembered: bool = False
    registered: str = ""


class Scheduler(Protocol):
    """What gives work to nodes. Errors of all methods: ``provision.cluster.errors``, UnreachableError."""

    @property
    def name(self) -> str:
        """What messages call it."""

    def look(self, views: Mapping[str, NodeView]) -> Mapping[str, SchedulerNode | NodeProblem]:
        """Return what is true of each node now; ``views`` are what the state file has on them."""

    def drain(self, node: str, reason: str) -> None:
        """Have a node that was looked at take no new work; doing it again does no harm."""

    def resume(self, node: str) -> None:
        """Have a node that was looked at take work again; doing it again does no harm."""
