"""What speaks for a GPU again: the strongest evidence since a finding was seen last. Pure.

The steps are those of `Class`: a finding closes when the evidence is as strong as what it asks for. Only a person's
verdict closes one that asks for an exchange of the hardware.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.devices.health.conditions import RECOVERY
from plugin.devices.health.model import Class

if TYPE_CHECKING:
    from plugin.devices.health.model import Finding, GpuInput, Moment, Policy

_WORDS = {
    Class.APPLICATION: "not seen again for {quiet_s:g} s",
    Class.PASSING: "not seen again for {quiet_s:g} s, and the gpu is idle and answers",
    Class.RESET: "the gpu was reset",
    Class.RELOAD: "the driver was reloaded",
    Class.REBOOT: "the node was rebooted",
}


def strongest(finding: Finding, resets: int, look: GpuInput, moment: Moment, policy: Policy) -> Class | None:
    """Return the evidence of this look, None without any. `resets` counts those of the GPU until now."""
    if _is_another(finding.boot_id, moment.boot_id):
        return Class.REBOOT
    if _is_another(finding.module_id, moment.module_id):
        return Class.RELOAD
    if resets > finding.resets:
        return Class.RESET
    if moment.uptime_s - max(finding.seen_s, moment.watched_since_s) < policy.quiet_s:
        return None
    is_idle = look.reading is not None and look.reading.processes == 0
    return Class.PASSING if is_idle else Class.APPLICATION


def _is_another(then: str, now: str) -> bool:
    """Whether both are known and differ: what cannot be told is no evidence."""
    return bool(then) and bool(now) and then != now


def why_closed(finding: Finding, resets: int, look: GpuInput, moment: Moment, policy: Policy) -> str:
    """Return the evidence that closes a finding in words, "" when it stays open.

    A GPU that was condemned must answer a reading in this very look, whatever happened to it.
    """
    if finding.cause == RECOVERY and look.reading is not None and look.reading.recovery_action == 0:
        return "the driver asks for nothing any more"
    evidence = strongest(finding, resets, look, moment, policy)
    if evidence is None or evidence < finding.kind:
        return ""
    if finding.kind.condemns and look.reading is None:
        return ""
    return _WORDS[evidence].format(quiet_s=policy.quiet_s)
