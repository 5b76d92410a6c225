"""Defines what is read of Jobs, their pods and Events."""

from __future__ import annotations

import msgspec

from provision.cluster.objects import Metadata  # noqa: TC001 - msgspec resolves the annotation


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Tolerant: what is not named is ignored."""


class JobCondition(_Part, frozen=True, kw_only=True):
    type: str
    status: str
    message: str = ""


class JobStatus(_Part, frozen=True, kw_only=True):
    conditions: tuple[JobCondition, ...] = ()


class Job(_Part, frozen=True, kw_only=True):
    """A Job of batch/v1."""

    metadata: Metadata
    status: JobStatus = JobStatus()

    @property
    def failure(self) -> str:
        """Why it has failed, empty while it has not."""
        # FailureTarget comes first; Failed only when its pods have ended, which on a node that has gone is never.
        failed = [each for each in self.status.conditions if each.type in {"Failed", "FailureTarget"}]
        return next((each.message or each.type for each in failed if each.status == "True"), "")


class Waiting(_Part, frozen=True, kw_only=True):
    reason: str = ""
    message: str = ""


class Ended(_Part, frozen=True, kw_only=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""


class State(_Part, frozen=True, kw_only=True):
    """One of them is set: ``running`` has nothing that is read."""

    waiting: Waiting | None = None
    running: dict[str, object] | None = None
    terminated: Ended | None = None


class ContainerStatus(_Part, frozen=True, kw_only=True):
    name: str = ""
    state: State = State()
    last_state: State = State()


class PodStatus(_Part, frozen=True, kw_only=True):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()


class AgentPod(_Part, frozen=True, kw_only=True):
    """The pod of a Job."""

    metadata: Metadata
    status: PodStatus = PodStatus()

    @property
    def state(self) -> State:
        """How its container stands."""
        return next((each.state for each in self.status.container_statuses), State())

    @property
    def last(self) -> Ended | None:
        """How its container ended last, None where it has not."""
        found = next(iter(self.status.container_statuses), ContainerStatus())
        return found.state.terminated or found.last_state.terminated

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs again."""
        return self.status.phase in {"Succeeded", "Failed"}


class Event(_Part, frozen=True, kw_only=True):
    """An Event of the core API."""

    reason: str = ""
    message: str = ""
    type: str = ""
