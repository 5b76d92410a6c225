"""Defines what is known of one node's machine as JSON, a part of ``docs/contracts/status``."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import msgspec

from provision.rollout.status.derive import wanted_driver
from provision.rollout.status.reported import Daemon, Drift, gpu_resources, knows_offer, only_gpus
from provision.rollout.status.words import cells_of, used_on, ways_to_know

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from provision.rollout.status.model import NodeStatus
    from provision.rollout.status.reported import User

Time = Annotated[datetime, msgspec.Meta(tz=True)]
Number = Annotated[int, msgspec.Meta(ge=0)]


class KubeletDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the API server has of the kubelet; ``heard`` is the last heartbeat of its condition Ready."""

    version: str | None
    ready: bool
    heard: Time | None


class UserDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that holds GPUs, and how many by resource."""

    pod: str
    devices: dict[str, Number]


class GpusDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """GPUs that the node daemon sees, and devices that pods can be given, by resource; ``users`` are pods with some.

    ``in_use`` are the devices that pods have, by resource; null: nobody asked.
    """

    seen: Number | None
    unusable: Number
    trouble: str
    offered: dict[str, Number] | None
    in_use: dict[str, Number] | None = None
    users: tuple[UserDocument, ...] | None = None


class MachineDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a Node says of its machine. Null is what nobody has said lately."""

    kubelet: KubeletDocument
    engine: str | None
    daemon: Daemon
    daemon_heard: Time | None
    driver: str | None
    driver_trouble: str
    kernel_module: str | None
    gpus: GpusDocument
    drift: Drift
    drift_words: str


class DeclaredDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a node is to have. ``driver`` is a version, or a branch in words; null: grapnel leaves the driver alone.

    ``resource`` is what pods ask for; null: no node daemon is declared.
    """

    driver: str | None
    resource: str | None


class UnknownDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What is not known of a node, and what would make it known."""

    what: str
    how: str


def declared_document(node: NodeStatus) -> DeclaredDocument | None:
    """Return what a node is to have, None where that is not known."""
    driver, plugin = node.declared, node.plugin
    if driver is None:
        return None
    return DeclaredDocument(
        driver=wanted_driver(driver) if driver.enabled else None,
        resource=plugin.resource if plugin is not None and plugin.enabled else None,
    )


def machine_document(node: NodeStatus) -> MachineDocument | None:
    """Return what a Node says of its machine, None where there is no Node."""
    said = node.reported
    if said is None:
        return None
    return MachineDocument(
        kubelet=KubeletDocument(version=said.kubelet or None, ready=said.is_ready, heard=said.heard),
        engine=said.engine or None,
        daemon=said.daemon,
        daemon_heard=said.said,
        driver=said.driver or None,
        driver_trouble=said.driver_trouble,
        kernel_module=said.module or None,
        gpus=GpusDocument(
            seen=said.seen,
            unusable=said.unusable,
            trouble=said.gpu_trouble,
            offered=gpu_resources(said, node.plugin) if knows_offer(said, node.plugin) else None,
            in_use=used_on(node),
            users=None if said.users is None else tuple(_users(said.users, node)),
        ),
        drift=said.drift,
        drift_words=said.drift_words,
    )


def unknown_documents(node: NodeStatus) -> tuple[UnknownDocument, ...]:
    """Return what is not known of a node."""
    return tuple(UnknownDocument(what=what, how=how) for what, how in ways_to_know(node, cells_of(node)))


def _users(users: Iterable[User], node: NodeStatus) -> Iterator[UserDocument]:
    for user in users:
        if devices := only_gpus(user.devices, node.plugin):
            yield UserDocument(pod=user.pod, devices=devices)
