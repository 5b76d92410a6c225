"""Defines a simulated machine: what its Node object has, what runs on it, and how far its driver is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.model import GpuPod, NodeView, Phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provision.rollout.model import Record


@dataclass(slots=True, kw_only=True)
class Pod:
    """A pod that has a GPU. It ends ``grace_s`` after it was told to; never, where it is stuck.

    ``budget`` is the disruption budget that it counts for, empty where there is none. ``is_job``: it is waited for, and
    ends by itself.
    """

    namespace: str
    name: str
    uid: str
    grace_s: float = 0.0
    budget: str = ""
    controller: str = ""
    is_daemon: bool = False
    is_job: bool = False
    is_stuck: bool = False
    is_terminating: bool = False

    def seen(self) -> GpuPod:
        """Return what the API server tells of it."""
        return GpuPod(
            namespace=self.namespace,
            name=self.name,
            uid=self.uid,
            is_terminating=self.is_terminating,
            is_mirror_or_daemon=self.is_daemon,
            controller=self.controller,
        )


@dataclass(slots=True)
class DriverExchange:
    """An exchange of the driver that goes on by itself: it ends even if whoever began it does not.

    ``is_back``: it leads to what the node ran before, and does not add to what a way back leads over.
    """

    target: str
    ends_s: float
    failure: str = ""
    is_back: bool = False


@dataclass(slots=True, kw_only=True)
class Machine:
    """One node. ``driver`` is what runs on it, ``verified`` the driver that was verified since it was last exchanged.

    ``former`` are the drivers that a way back leads over, the latest one last; ``last`` is the last exchange.
    ``cordoned_by`` is who else wants it cordoned, ``held_by`` which tool is at it, ``is_skipped`` whether people want
    it left alone. ``is_up``: it answers over SSH, and its kubelet reports.
    ``broken`` are phases whose step fails on it, each with what it then says; ``ill`` is a hardware failure that has
    nothing to do with an upgrade. ``registered`` counts how often its Node was. ``ordered`` is the driver that the last
    step was to bring: a step goes on to its end, also when the record that it began with is gone.
    """

    name: str
    driver: str
    record: Record | None = None
    is_cordoned: bool = False
    cordoned_by: str = ""
    is_up: bool = True
    is_deleted: bool = False
    registered: int = 1
    ordered: str = ""
    ill: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    is_skipped: bool = False
    held_by: str = ""
    is_released: bool = False
    verified: str = ""
    change: DriverExchange | None = None
    last: DriverExchange | None = None
    former: list[str] = field(default_factory=list)
    pods: dict[str, Pod] = field(default_factory=dict)
    broken: dict[Phase, str] = field(default_factory=dict)
    holders: int = 0
    attempts: dict[Phase, int] = field(default_factory=dict)

    @property
    def is_ready(self) -> bool:
        """Whether its Node is."""
        return self.is_up and not self.ill

    @property
    def uid(self) -> str:
        """The UID of its Node."""
        return f"{self.name}-{self.registered}"

    def seen(self) -> NodeView | NodeProblem:
        """Return what the API server tells of it."""
        if self.is_deleted:
            return NodeProblem(name=self.name, message=f"{self.name} is no node of the cluster", hint="")
        pods = self.pods
        return NodeView(
            name=self.name,
            record=self.record,
            is_cordoned=self.is_cordoned,
            is_ready=self.is_ready,
            gpu_pods=tuple([pod.seen() for pod in pods.values()]) if pods else (),
            labels=self.labels,
            jobs=tuple([pod.seen() for pod in pods.values() if pod.is_job]) if pods else (),
            is_skipped=self.is_skipped,
            held_by=self.held_by,
            uid=self.uid,
            machine_id=self.name,
        )
