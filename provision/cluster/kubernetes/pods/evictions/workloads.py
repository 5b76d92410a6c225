"""Defines what is read of the owners of pods, and of their pods, as values."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from provision.cluster.kubernetes.objects.core import Condition, LabelSelector, Metadata, OwnerReference
from provision.cluster.kubernetes.objects.pods import Toleration

REVISION: Final = "deployment.kubernetes.io/revision"  # of a Deployment and of its ReplicaSets; the newest is highest


class _Object(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Tolerant: what is not named is ignored."""


class ReplicaSet(_Object, frozen=True, kw_only=True):
    metadata: Metadata

    @property
    def deployment(self) -> OwnerReference | None:
        """The Deployment that it is of, None for none."""
        owner = self.metadata.controller
        return owner if owner is not None and owner.is_a("apps", "Deployment") else None


class RollingUpdate(_Object, frozen=True, kw_only=True):
    """Numbers of pods, or percentages; the defaults are those of the API."""

    max_surge: int | str = "25%"
    max_unavailable: int | str = "25%"


class Strategy(_Object, frozen=True, kw_only=True):
    """``type`` is RollingUpdate or Recreate."""

    type: str = "RollingUpdate"
    rolling_update: RollingUpdate | None = None


class DeploymentMetadata(Metadata, frozen=True, kw_only=True):
    """``generation`` counts the changes of the spec."""

    generation: int = 0


class DeploymentSpec(_Object, frozen=True, kw_only=True):
    replicas: int = 1
    selector: LabelSelector = LabelSelector()
    strategy: Strategy = Strategy()
    paused: bool = False


class DeploymentStatus(_Object, frozen=True, kw_only=True):
    """``observed_generation`` is what its controller has acted on."""

    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


class Deployment(_Object, frozen=True, kw_only=True):
    metadata: DeploymentMetadata
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()

    @property
    def surge(self) -> int:
        """How many pods a rollout may start beyond its replicas."""
        return _count(self._update.max_surge, self.spec.replicas, is_rounded_up=True)

    @property
    def unavailable(self) -> int:
        """How many of its pods a rollout may end before others are available."""
        return _count(self._update.max_unavailable, self.spec.replicas, is_rounded_up=False)

    @property
    def complaint(self) -> str:
        """What its controller says to be wrong, in its own words."""
        for each in self.status.conditions:
            if (each.type, each.status) in (("ReplicaFailure", "True"), ("Progressing", "False")):
                return each.message
        return ""

    @property
    def _update(self) -> RollingUpdate:
        return self.spec.strategy.rolling_update or RollingUpdate()


class ReplicaSpec(_Object, frozen=True, kw_only=True):
    node_name: str = ""
    tolerations: tuple[Toleration, ...] = ()


class ReplicaStatus(_Object, frozen=True, kw_only=True):
    phase: str = "Pending"
    conditions: tuple[Condition, ...] = ()


class Replica(_Object, frozen=True, kw_only=True):
    """A pod of a ReplicaSet."""

    metadata: Metadata
    spec: ReplicaSpec = ReplicaSpec()
    status: ReplicaStatus = ReplicaStatus()

    @property
    def owner(self) -> str:
        """The uid of its ReplicaSet, empty for none."""
        owner = self.metadata.controller
        return owner.uid if owner is not None and owner.is_a("apps", "ReplicaSet") else ""

    @property
    def is_alive(self) -> bool:
        """Whether it runs or is to run, and is not being ended."""
        return self.metadata.deletion_timestamp is None and self.status.phase not in {"Succeeded", "Failed"}

    @property
    def is_ready(self) -> bool:
        """Whether its kubelet says so."""
        return self.is_alive and any(each.type == "Ready" and each.status == "True" for each in self.status.conditions)

    @property
    def why_unscheduled(self) -> str:
        """What the scheduler says about it, empty where it says nothing."""
        found = [each for each in self.status.conditions if each.type == "PodScheduled" and each.status == "False"]
        return found[0].message if found else ""


def revision(metadata: Metadata) -> int:
    """Return the revision of a Deployment or of one of its ReplicaSets, 0 where it has none yet."""
    text = metadata.annotations.get(REVISION, "")
    return int(text) if text.isdecimal() else 0


def _count(share: int | str, replicas: int, *, is_rounded_up: bool) -> int:
    """Return a number of pods; the rounding is the Deployment controller's."""
    if isinstance(share, int):
        return share
    percent = share.removesuffix("%")
    exact = replicas * int(percent) / 100 if percent.isdecimal() else 0.0
    return math.ceil(exact) if is_rounded_up else math.floor(exact)
