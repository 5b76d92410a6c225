"""Says what Slurm's states mean for a rollout. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from provision.cluster.schedulers.slurm.answers import SlurmNode

OURS: Final = "grapnel:"  # how a reason of ours begins
_DRAIN: Final = "DRAIN"
_BUSY: Final = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
_DOWN: Final = "DOWN"
_NOT_READY: Final = {
    "NOT_RESPONDING": "slurmd does not answer",
    "INVALID_REG": "slurmd has registered with less than slurm.conf says",
    "UNKNOWN": "slurmd has not registered yet",
    "ERROR": "Slurm says ERROR",
    "FAIL": "Slurm says FAIL",
    "FUTURE": "it is declared for the future",
    "POWERED_DOWN": "it is powered down",
    "POWERING_DOWN": "it is being powered down",
    "POWERING_UP": "it is being powered up",
    "POWER_DOWN": "it is to be powered down",
    "REBOOT_ISSUED": "Slurm is rebooting it",
}
_REBOOT_REQUESTED: Final = "REBOOT_REQUESTED"


def is_drained(node: SlurmNode) -> bool:
    """Tell whether the node gets no new jobs: Slurm says DRAIN before and after its jobs have ended."""
    return _DRAIN in node.states


def is_ours(node: SlurmNode) -> bool:
    """Tell whether grapnel has drained the node; newer versions keep a reason after a resume."""
    return is_drained(node) and node.reason.startswith(OURS)


def is_busy(node: SlurmNode) -> bool:
    """Tell whether a job, or its epilog, still has the node."""
    return bool(node.states & _BUSY)


def is_unheard_of(node: SlurmNode) -> bool:
    """Tell whether slurmctld has started and not heard of the node since: what runs on it is not in its state yet."""
    return "UNKNOWN" in node.states


def why_not_ready(node: SlurmNode) -> str:
    """Return why a node could not work if it were not drained, empty for one that could.

    Slurm 22.05 says DOWN of a node that rebooted while it was drained, until it is resumed, although slurmd answers.
    """
    for state, meaning in _NOT_READY.items():
        if state in node.states:
            return _because(meaning, node)
    if _DOWN in node.states and not is_ours(node):
        return _because("Slurm says DOWN", node)
    return ""


def why_held(node: SlurmNode) -> str:
    """Return why others than us are about to work at the node, empty where they are not."""
    if _REBOOT_REQUESTED in node.states:
        return "somebody has asked Slurm to reboot it (`scontrol cancel_reboot` takes that back)"
    return ""


def _because(meaning: str, node: SlurmNode) -> str:
    return f"{meaning} ({node.reason})" if node.reason and not node.reason.startswith(OURS) else meaning
