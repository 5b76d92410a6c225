"""Defines the parts of Kubernetes objects that are read, as values.

Answers are decoded straight into these (msgspec): the client's own models would cost seconds for a thousand nodes.
Names are those of the Kubernetes API; fields that are not named here are skipped unread.
"""

from __future__ import annotations

from datetime import datetime
from typing import Generic, TypeVar

import msgspec


class ApiObject(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Tolerant: what is not named is ignored."""


class OwnerReference(ApiObject, frozen=True, kw_only=True):
    """Who made an object; ``controller`` marks the one that manages it.

    Whoever makes an object may write any into it. What names an owner that is not there, by its uid, is deleted by the
    garbage collector, if the cluster serves the owner's kind: other kinds are never looked at.
    """

    kind: str
    name: str
    api_version: str = ""
    uid: str = ""
    controller: bool = False

    def is_a(self, group: str, kind: str) -> bool:
        """Tell whether the owner is of a kind of an API group, in whatever version."""
        return self.kind == kind and self.api_version.startswith(f"{group}/")


class Metadata(ApiObject, frozen=True, kw_only=True):
    """What every object has. ``deletion_timestamp`` is set while it is being deleted: when its grace period ends.

    ``creation_timestamp`` is by the API server's clock.
    """

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    creation_timestamp: datetime | None = None
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] = ()

    @property
    def controller(self) -> OwnerReference | None:
        """Which controller manages it, None where none does."""
        return next((each for each in self.owner_references if each.controller), None)


class Condition(ApiObject, frozen=True, kw_only=True):
    """``status`` is "True", "False" or "Unknown"; ``reason`` is one word, ``message`` is for people.

    ``last_heartbeat_time`` is when whoever answers for it last said so, as it was written.
    """

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_heartbeat_time: str | None = None


class SelectorRequirement(ApiObject, frozen=True, kw_only=True):
    """``operator`` is In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(ApiObject, frozen=True, kw_only=True):
    """Selects objects by labels; without any requirement, all of them."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[SelectorRequirement, ...] = ()


class Involved(ApiObject, frozen=True, kw_only=True):
    """What an Event is about."""

    kind: str = ""
    name: str = ""


class Event(ApiObject, frozen=True, kw_only=True):
    """What a part of the cluster has said of an object lately."""

    metadata: Metadata
    involved_object: Involved = Involved()
    reason: str = ""
    message: str = ""


class ServedResource(ApiObject, frozen=True, kw_only=True):
    """A resource that an API version serves; ``name`` is its plural."""

    name: str


class ServedResources(ApiObject, frozen=True, kw_only=True):
    """All that an API version serves."""

    resources: tuple[ServedResource, ...] = ()


class GroupVersion(ApiObject, frozen=True, kw_only=True):
    """A version of an API group, such as ``resource.k8s.io/v1``."""

    group_version: str


class ApiGroup(ApiObject, frozen=True, kw_only=True):
    """What the API server says of a group of its API; its versions begin with the one that it prefers."""

    preferred_version: GroupVersion
    versions: tuple[GroupVersion, ...] = ()


class RuntimeClass(ApiObject, frozen=True, kw_only=True):
    """A RuntimeClass; ``handler`` is a name in the engine's configuration."""

    metadata: Metadata
    handler: str


class LeaseSpec(ApiObject, frozen=True, kw_only=True):
    """Who holds a lease; an empty holder means none."""

    holder_identity: str = ""
    lease_duration_seconds: int | None = None
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int = 0


class Lease(ApiObject, frozen=True, kw_only=True):
    """A Lease of coordination.k8s.io."""

    metadata: Metadata
    spec: LeaseSpec = LeaseSpec()


class ListMetadata(
    ApiObject, frozen=True, kw_only=True, rename={"continue_": "continue", "resource_version": "resourceVersion"}
):
    """``continue_`` asks for the next page; empty on the last one. ``resource_version`` is the moment of the list."""

    continue_: str = ""
    resource_version: str = ""


Item = TypeVar("Item")


class Page(ApiObject, Generic[Item], frozen=True, kw_only=True):
    metadata: ListMetadata = ListMetadata()
    items: tuple[Item, ...] = ()


class WatchEvent(ApiObject, frozen=True, kw_only=True):
    """One change: ADDED, MODIFIED or DELETED, or a BOOKMARK of the moment, or an ERROR with a Status."""

    type: str
    object: msgspec.Raw


class Cause(ApiObject, frozen=True, kw_only=True):
    """One of the reasons of a refusal; ``field`` is what it is about."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(ApiObject, frozen=True, kw_only=True):
    """What a refusal says besides its message."""

    causes: tuple[Cause, ...] = ()


class Status(ApiObject, frozen=True, kw_only=True):
    """Why the API server refuses: the kind ``Status``."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails = StatusDetails()
