"""What of an observation becomes a Node event. Pure.

Reasons are a closed table, for people write alerts on them; messages name the GPU, the cause and the remedy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.devices.health.model import NEEDS, FindingChange
from plugin.publication.node_object.conditions import bounded
from plugin.publication.node_object.model import Note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plugin.devices.health.model import Transition
    from plugin.devices.observer import Observation

_OF_CAUSE = {
    "lost": "GPULost",
    "nvlink down": "GPUNVLinkDown",
    "ecc": "GPUEccError",
    "rows pending": "GPURowRemapPending",
    "rows failed": "GPURowRemapFailed",
    "pages pending": "GPUPageRetirementPending",
}
REASONS = (
    "GPUXidError",
    *_OF_CAUSE.values(),
    "GPUUnhealthy",
    "GPUErrorResolved",
    "GPUHealthy",
    "GPUVerdict",
    "GPUDriverLost",
    "GPUDriverReady",
    "GPUsReleased",
    "GPUsResumed",
)


def notes_of(before: Observation, was_released: str, now: Observation, released: str) -> Iterator[Note]:
    """Yield what happened between two states of the node, oldest cause first."""
    if released and not was_released:
        yield _note("GPUsReleased", f"{released}: no GPU is offered until grapnel-node resume")
    if was_released and not released:
        yield _note("GPUsResumed", "the release is over: GPUs are offered again")
    if released:
        return
    unusable = {device.gpu.uuid for device in now.inventory.devices if device.unhealthy}
    for transition in now.transitions:
        yield from _of_transition(transition, unusable)
    if not was_released:
        yield from _of_driver(before, now)
        if not before.waiting_for and not now.waiting_for:
            yield from _of_devices(before, now)


def _note(reason: str, message: str, subject: str = "", cause: str = "", *, is_warning: bool = False) -> Note:
    return Note(is_warning, reason, bounded(message), subject, cause)


def _reason(cause: str) -> str:
    return "GPUXidError" if cause.startswith("xid ") else _OF_CAUSE.get(cause, "GPUUnhealthy")


def _of_transition(transition: Transition, unusable: set[str]) -> Iterator[Note]:
    uuid, cause, kind = transition.uuid, transition.cause, transition.kind
    if transition.change is FindingChange.STRAY:
        yield _note("GPUXidError", f"{cause} of a device nobody knows: {transition.reason}", "", cause, is_warning=True)
    elif transition.change is FindingChange.VERDICT:
        yield _note("GPUVerdict", f"{uuid}: {transition.reason}", uuid, is_warning=uuid in unusable)
    elif transition.change is FindingChange.CLOSED:
        if kind.condemns:
            yield _note("GPUErrorResolved", f"{uuid}: {cause} is over: {transition.reason}", uuid, cause)
    elif kind.condemns or cause.startswith("xid "):
        message = f"{uuid}: {cause}: {transition.reason}; needs {NEEDS[kind]}"
        yield _note(_reason(cause), message, uuid, cause, is_warning=kind.condemns)


def _of_driver(before: Observation, now: Observation) -> Iterator[Note]:
    if now.waiting_for and not before.waiting_for:
        message = f"{now.waiting_for}; {now.hint}" if now.hint else now.waiting_for
        yield _note("GPUDriverLost", message, is_warning=True)
    if before.waiting_for and not now.waiting_for:
        devices = len(now.inventory.devices)
        yield _note("GPUDriverReady", f"driver {now.inventory.driver_version} answers: {devices} GPUs")


def _of_devices(before: Observation, now: Observation) -> Iterator[Note]:
    """Yield GPUs that can be used again, and those that cannot for a reason that is no finding: a device node."""
    told = {transition.uuid for transition in now.transitions if transition.change is not FindingChange.CLOSED}
    was = {device.gpu.uuid: device.unhealthy for device in before.inventory.devices}
    for device in now.inventory.devices:
        uuid, reason = device.gpu.uuid, device.unhealthy
        if reason and not was.get(uuid) and uuid not in told:
            yield _note("GPUUnhealthy", f"{uuid}: {reason}", uuid, is_warning=True)
        if was.get(uuid) and not reason:
            yield _note("GPUHealthy", f"{uuid} can be used again; it could not: {was[uuid]}", uuid)
