"""States of a node as the daemon observes them."""

from __future__ import annotations

from plugin.devices.health.model import Class, FindingChange, Transition
from plugin.devices.inventory import Device, Inventory
from plugin.devices.observer import Observation
from tests.plugin.fakes import VERSION, gpus

UTC = "2026-11-21T10:00:00Z"
UUIDS = [each.uuid for each in gpus(8)]
XID_48 = "xid 48: double-bit memory error; needs a reset of the GPU"


def observed(*unhealthy: str, transitions: tuple[Transition, ...] = ()) -> Observation:
    """Return a state with one GPU for each reason; "" is a healthy one."""
    pairs = zip(gpus(len(unhealthy)), unhealthy, strict=True)
    devices = tuple(Device(found, f"/dev/nvidia{found.index}", unhealthy=reason) for found, reason in pairs)
    return Observation(Inventory(VERSION, devices), transitions=transitions)


def without_answer(*unhealthy: str) -> Observation:
    """Return a state in which the driver does not answer."""
    return Observation(observed(*unhealthy).inventory, "nvml does not answer: driver not loaded", "load it")


def transition(
    change: FindingChange = FindingChange.OPENED,
    cause: str = "xid 48",
    kind: Class = Class.RESET,
    reason: str = "double-bit memory error",
    gpu: int = 0,
) -> Transition:
    """Return something that happened to a GPU."""
    return Transition(UUIDS[gpu], change, cause, kind, reason, UTC)
