"""What of an observation is worth a line in the journal: changes, each once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plugin.devices.observer import Observation
    from plugin.log import Journal


def report(journal: Journal, before: Observation, now: Observation) -> None:
    """Say what changed between two observations."""
    hint = {"hint": now.hint} if now.hint else {}
    journal.standing("driver", now.waiting_for, **hint)
    current = dict(now.inventory.findings)
    for topic in {**dict(before.inventory.findings), **current}:
        journal.standing(topic, current.get(topic, ""))
    healthy = {device.gpu.uuid: device.unhealthy for device in before.inventory.devices}
    for device in now.inventory.devices:
        was = healthy.get(device.gpu.uuid, "")
        if device.unhealthy and not was:
            journal.warning("unhealthy", device=device.gpu.uuid, reason=device.unhealthy)
        elif was and not device.unhealthy:
            journal.info("healthy again", device=device.gpu.uuid, was=was)
