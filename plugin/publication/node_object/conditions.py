"""The conditions of the Node, out of what was observed. Pure.

True is good, as with the kubelet's own `Ready`: an alert is on anything else. The reasons are a closed table, in
`docs/contracts/node-state`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.drift.result import Verdict
from plugin.publication.node_object.model import FALSE, TRUE, UNKNOWN, Condition

if TYPE_CHECKING:
    from plugin.devices.observer import Observation
    from plugin.drift.model import Difference
    from plugin.drift.result import Result

GPUS_HEALTHY = "GPUsHealthy"
DRIVER_READY = "GPUDriverReady"
AS_DECLARED = "GPUNodeAsDeclared"
OWN_KINDS = (GPUS_HEALTHY, DRIVER_READY, AS_DECLARED)
MAX_MESSAGE = 1024


def bounded(text: str) -> str:
    """Return a message that fits: a node with many broken GPUs must not make a huge object."""
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


def conditions_of(observation: Observation, released: str) -> tuple[Condition, ...]:
    """Return the two conditions of GPUs and driver. `released` is why the node is released, "" while it is not."""
    return _gpus(observation, released), _driver(observation, released)


def _gpus(observation: Observation, released: str) -> Condition:
    if released:
        return Condition(GPUS_HEALTHY, UNKNOWN, "Released", bounded(f"{released}: no GPU is offered"))
    if observation.waiting_for:
        return Condition(GPUS_HEALTHY, UNKNOWN, "DriverNotReady", bounded(observation.waiting_for))
    devices = observation.inventory.devices
    bad = [device for device in devices if device.unhealthy]
    if bad:
        named = "; ".join(f"{device.gpu.uuid}: {device.unhealthy}" for device in bad)
        message = f"{len(bad)} of {len(devices)} GPUs cannot be used: {named}"
        return Condition(GPUS_HEALTHY, FALSE, "GPUsUnhealthy", bounded(message))
    return Condition(GPUS_HEALTHY, TRUE, "AllGPUsHealthy", f"{len(devices)} GPUs can be used")


def _driver(observation: Observation, released: str) -> Condition:
    if released:
        return Condition(DRIVER_READY, UNKNOWN, "Released", bounded(f"{released}: the driver is not asked"))
    if observation.waiting_for:
        words = " (".join(text for text in (observation.waiting_for, observation.hint) if text)
        return Condition(DRIVER_READY, FALSE, "DriverNotReady", bounded(words + ")" * bool(observation.hint)))
    version = observation.inventory.driver_version
    return Condition(DRIVER_READY, TRUE, "DriverAnswers", f"driver {version} answers")


def with_changes(before: tuple[Condition, ...], now: tuple[Condition, ...], utc: str) -> tuple[Condition, ...]:
    """Return the current conditions, each with the time at which its status was seen to change last."""
    was = {condition.kind: condition for condition in before}

    def since(condition: Condition) -> str:
        old = was.get(condition.kind)
        if old is None:
            return ""
        return old.since if old.status == condition.status else utc

    return tuple(condition._replace(since=since(condition)) for condition in now)


def transition_time(wanted: Condition, there: Condition | None, utc: str) -> str:
    """Return `lastTransitionTime`: of a change that was seen, else what the API has for the same status, else now."""
    if wanted.since:
        return wanted.since
    is_same = there is not None and there.status == wanted.status
    return there.since if is_same and there is not None and there.since else utc


def drift_condition(result: Result) -> Condition:
    """Return the condition: which differences there are, and what mends them."""
    if result.verdict is Verdict.NOT_COMPARED:
        return Condition(AS_DECLARED, UNKNOWN, "NotCompared", bounded(result.reason))
    if result.verdict is Verdict.AS_DECLARED:
        return Condition(AS_DECLARED, TRUE, "AsDeclared", "nothing differs from what grapnel apply brought about")
    count = len(result.differences)
    noun = "difference" if count == 1 else "differences"
    mends = "; ".join(dict.fromkeys(f"`{each.mend}`" for each in result.differences))
    return Condition(
        AS_DECLARED,
        FALSE,
        "Drifted",
        bounded(f"{count} {noun}, to be mended by {mends}: {_listed(result.differences)}"),
    )


def _listed(differences: tuple[Difference, ...]) -> str:
    return "; ".join(f"{each.kind.value} {each.name} is {each.found}, declared {each.declared}" for each in differences)
