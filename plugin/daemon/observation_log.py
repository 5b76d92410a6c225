"""Logs what changed between two observations, each change once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plugin.base.log import Logger
    from plugin.devices.observer import Observation


def log_changes(logger: Logger, before: Observation, now: Observation) -> None:
    """Log the driver's state, what is missing, and every device that became unhealthy or healthy again."""
    hint = {"hint": now.hint} if now.hint else {}
    logger.standing("driver", now.waiting_for, **hint)
    current = dict(now.inventory.findings)
    for topic in {**dict(before.inventory.findings), **current}:
        logger.standing(topic, current.get(topic, ""))
    healthy = {device.gpu.uuid: device.unhealthy for device in before.inventory.devices}
    for device in now.inventory.devices:
        was = healthy.get(device.gpu.uuid, "")
        if device.unhealthy and not was:
            logger.warning("unhealthy", device=device.gpu.uuid, reason=device.unhealthy)
        elif was and not device.unhealthy:
            logger.info("healthy again", device=device.gpu.uuid, was=was)
