"""Defines what the rollout asks of the place where node state lives; ``provision.cluster`` implements it.

Nodes are named as in the inventory. Errors of all methods: ``provision.rollout.errors``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from contextlib import AbstractContextManager

    from provision.rollout.model import GpuPod, NodeView, Record
    from provision.rollout.pause import Pause
    from provision.rollout.standing import Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProblem:
    """Why nothing can be decided about one node: not in the cluster, an ambiguous name, a broken record."""

    name: str
    message: str
    hint: str = ""


class EvictionOutcome(StrEnum):
    """How an attempt to evict a pod ended."""

    EVICTED = "evicted"  # accepted: the pod now has its own grace period to end
    GONE = "gone"  # it is not there any more; a pod of the same name is another one
    BLOCKED = "blocked"  # refused for now, such as by a PodDisruptionBudget; ask again later


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """The answer to an eviction; ``reason`` says why one was BLOCKED, with the budget's name if there is one."""

    outcome: EvictionOutcome
    reason: str = ""


class Cluster(Protocol):
    """Where node state lives."""

    @property
    def name(self) -> str:
        """What messages call it, such as "cluster stage at https://127.0.0.1:6443"."""

    def observe(self, nodes: Collection[str]) -> Mapping[str, NodeView | NodeProblem]:
        """Return what is true of each of ``nodes`` now; every name that was asked is in the answer.

        Never from a stale cache: a pod that was bound before the call is seen.
        """

    def write(self, node: str, record: Record | None, *, cordoned: bool | None = None) -> None:
        """Remember ``record`` (None: forget it) and cordon or uncordon, all of it or nothing.

        ``cordoned=None`` leaves the cordon as it is. Raises ConflictError when the node's record or cordon is no
        longer as it was last observed or written here: observe again and decide again. Other changes of the node
        are no conflict.
        """

    def evict(self, pod: GpuPod) -> Eviction:
        """Ask for the pod to leave its node, within its own grace period and its disruption budgets."""

    def has_runtime_class(self, name: str, handler: str) -> bool:
        """Return whether the RuntimeClass is there, or is not needed. Raises RuntimeClassError as below."""

    def ensure_runtime_class(self, name: str, handler: str) -> bool:
        """Return whether the RuntimeClass had to be created.

        Raises RuntimeClassError when one of that name has another handler.
        """

    def lease(self, holder: str) -> AbstractContextManager[None]:
        """Keep every other engine out while inside; the same ``holder`` takes its own lease over at once.

        Raises HeldError when somebody else holds it. When it is lost inside, the next `write`, `evict` or
        `ensure_runtime_class` raises LeaseLostError and does nothing.
        """

    def paused(self) -> Pause | None:
        """Return who wants no further node to begin, None where nobody does.

        Inside `lease` it costs no request, and is known within seconds.
        """

    def publish(self, standing: Standing) -> None:
        """Tell whoever reads the state of the fleet how the rollout stands, soon; never an error, called often.

        Only inside `lease`: what was said last stays after it, until the next one.
        """
