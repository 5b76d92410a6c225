"""Says what each state means in which a person may find a node, what follows, and what to type.

One table for `grapnel status` and for ``docs/upgrade-incidents.md``. Not here: what is otherwise where a controller
leads, or has gone (`advice`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from provision.rollout.model import Phase

_GO_ON: Final = "run the same command again, such as `grapnel apply`: it begins where that one stopped"
_AGAIN: Final = "correct what the reason names, then `grapnel apply`; or `grapnel retry NODE`, if an apply runs"


@dataclass(frozen=True, slots=True)
class Situation:
    """A state of a node. ``key`` is for scripts, ``title`` for people; ``todo`` is empty where there is nothing to do.

    ``needs_somebody``: it does not get on by itself.
    """

    key: str
    title: str
    means: str
    follows: str
    todo: str = ""
    needs_somebody: bool = False


IDLE: Final = Situation(
    "idle", "no upgrade", "no upgrade of it is recorded", "nothing, unless another driver is declared"
)
CORDONED: Final = Situation(
    "cordoned",
    "cordoned by somebody else",
    "it takes no new pods, and no upgrade of it is recorded; it counts as unavailable",
    "an upgrade leaves it cordoned",
    "`kubectl uncordon NODE`, if nobody needs it so",
)
NOT_READY: Final = Situation(
    "not-ready",
    "not ready",
    "its kubelet does not report, or reports that it is not ready; it counts as unavailable",
    "no upgrade of it begins before it is ready",
    "on the node: `systemctl status kubelet`",
    needs_somebody=True,
)
SILENT: Final = Situation(
    "daemon-silent",
    "node daemon silent",
    "its node daemon has not reported to its Node for half an hour: what is so of its driver and GPUs is not known",
    "nothing by itself",
    "on the node: `systemctl status grapnel-node`, and `journalctl -u grapnel-node`; where it is a pod, its log",
    needs_somebody=True,
)
NO_REPORT: Final = Situation(
    "no-report",
    "node daemon does not report",
    "its node daemon is declared to report to its Node (plugin.kubernetesApi), and never has",
    "nothing, until the next run",
    "`grapnel apply`, if it was not applied yet; else on the node: `journalctl -u grapnel-node`",
    needs_somebody=True,
)
SHORT_OF_GPUS: Final = Situation(
    "short-of-gpus",
    "GPUs not offered",
    "it is in service and pods cannot be given all of its GPUs",
    "nothing by itself; pods are given the GPUs that are offered",
    "`grapnel apply`, if it was not applied yet; else what the reason names, and on the node: "
    "`journalctl -u grapnel-node`",
    needs_somebody=True,
)
LAST_RUN_FAILED: Final = Situation(
    "last-run-failed",
    "last run failed",
    "no Node tells of it, and the last run that is kept on this machine did not bring it where it should be",
    "nothing, until the next run",
    "`grapnel report` says what happened, and which command goes on",
    needs_somebody=True,
)
UNCLEAR: Final = Situation(
    "unclear",
    "unclear",
    "its record cannot be read, or it cannot be told which Node it is",
    "nothing is done about it; the others go on",
    "what the reason says",
    needs_somebody=True,
)
WAITING: Final = Situation(
    "waiting",
    "waiting",
    "it is in service and has yet to be upgraded",
    "its turn comes when the reason no longer holds",
)
SKIPPED: Final = Situation(
    "skipped",
    "skipped",
    "somebody wants it left alone: no upgrade begins on it. Where it is cordoned as well, a person has it",
    "nothing",
    "`grapnel skip --undo NODE`, when upgrades may have it again",
)
NOT_BEGUN: Final = Situation(
    "not-begun",
    "not begun",
    "it is in service; the run that would have upgraded it is over",
    "nothing, until the next run",
    "`grapnel apply`, after what the reason names is corrected",
    needs_somebody=True,
)
DONE: Final = Situation("done", "done", "it is in service with the driver that was declared", "nothing")
WITHOUT_DRIVER: Final = Situation(
    "without-driver",
    "without a driver",
    "its driver was taken away, by `grapnel remove` or the way back from its first one; it is in service without one",
    "nothing, unless a driver is declared",
)
CHANGED_SINCE: Final = Situation(
    "changed-since",
    "changed since",
    "it is in service with another driver than its last upgrade brought it to: somebody has changed it past grapnel",
    "nothing, until the next run",
    "`grapnel plan` shows what differs, `grapnel apply` mends it",
    needs_somebody=True,
)
RETURNED: Final = Situation(
    "returned",
    "returned",
    "its upgrade failed, or somebody has asked for the way back; it is in service with its former driver, which was "
    "verified",
    "the next run tries it again",
    "correct what the reason names, then `grapnel apply`; or declare the driver that it has, and apply",
    needs_somebody=True,
)
PUT_BACK: Final = Situation(
    "put-back",
    "put back as it was",
    "its jobs did not end within waitFor.timeoutMinutes; it is in service with the driver that it had, untouched",
    "the next run waits for its jobs again",
    "`grapnel apply` when they have ended",
    needs_somebody=True,
)
UNRELATED: Final = Situation(
    "failed-unrelated",
    "failed, not by its upgrade",
    "it went, or was ill, before its driver was touched, so that the upgrade is not the cause: it stays cordoned, and "
    "does not count against maxFailures",
    "the next run begins with it: drain again, or verify if it is as declared by then",
    "bring the node back, or repair what the reason names; then `grapnel apply`",
    needs_somebody=True,
)
FAILED: Final = Situation(
    "failed",
    "failed",
    "its upgrade failed, and the record does not say where; it stays cordoned",
    "nothing, until the next run",
    _AGAIN,
    needs_somebody=True,
)

_WORKING: Final = {
    Phase.CORDON: (
        "it takes no new pods; where a NodeMaintenance is requested, it serves until that is ready",
        "wait-for-jobs where jobs are to be waited for, else drain; at once, or returned if nobody makes it ready",
    ),
    Phase.JOBS: (
        "pods that `rollout.waitFor` or `rollout.drain.onlyWait` selects are waited for; none is evicted",
        "drain, when they have ended; after waitFor.timeoutMinutes drain or returned, as waitFor.onTimeout says",
    ),
    Phase.DRAIN: (
        "pods that have a GPU are evicted, within their disruption budgets",
        "release, when they are gone; failed, after drainTimeoutMinutes",
    ),
    Phase.RELEASE: (
        "the node daemon closes the driver",
        "swap, when no process holds a GPU; failed, after drainTimeoutMinutes",
    ),
    Phase.SWAP: ("packages and kernel module are exchanged", "verify; rollback, if that fails"),
    Phase.VERIFY: ("driver and GPUs are compared with the declaration", "resume; rollback, if a check does not pass"),
    Phase.RESUME: (
        "the node daemon offers the GPUs again",
        "done, when they are offered and the kubelet is ready; rollback, after drainTimeoutMinutes",
    ),
    Phase.ROLLBACK: (
        "its upgrade failed; its former driver is brought back and verified, then its GPUs are offered again",
        "returned; failed, if that fails as well",
    ),
}
_LEFT: Final = {
    Phase.CORDON: "it takes no new pods or is about to, and nobody is at it; its GPUs are as before",
    Phase.JOBS: "it takes no new pods, and nobody is at it; its jobs go on, its GPUs are as before",
    Phase.DRAIN: "some of its pods may be evicted, and nobody is at it; its GPUs are as before",
    Phase.RELEASE: "its GPUs may be out of service, and nobody is at it",
    Phase.SWAP: "its GPUs are out of service; a swap that had begun goes on to its end on the node by itself",
    Phase.VERIFY: "its driver is exchanged and not yet verified, and nobody is at it; its GPUs are out of service",
    Phase.RESUME: "its driver is verified and its GPUs may be offered, but nobody uncordons it",
    Phase.ROLLBACK: "its upgrade failed, and it is not yet back in service with its former driver; nobody is at it",
}
_LEFT_TODO: Final = {
    Phase.SWAP: f"{_GO_ON}; `grapnel-driver status` on the node shows the swap",
}
_FAILED: Final = {
    Phase.CORDON: ("it could not be taken out of service", _AGAIN),
    Phase.JOBS: (
        "the wait for its jobs could not go on; it stays cordoned, its jobs and its GPUs are as before",
        _AGAIN,
    ),
    Phase.DRAIN: (
        "pods did not leave in time; it stays cordoned, its GPUs are as before",
        "scale up or correct the budget that the reason names, or raise drainTimeoutMinutes; then `grapnel apply`",
    ),
    Phase.RELEASE: (
        "a process kept a GPU; it stays cordoned, with its GPUs out of service",
        "stop what the reason names, then `grapnel apply`",
    ),
    Phase.SWAP: (
        (
            "it could not be reached any more while its driver was exchanged; it stays cordoned, and nobody knows "
            "which driver it has. Or `grapnel rollback` or `grapnel remove` failed on it"
        ),
        "bring the node back; `grapnel-driver status` on it shows each step; then `grapnel apply`",
    ),
    Phase.VERIFY: (
        (
            "it could not be reached any more when its driver was to be verified; it stays cordoned, with its GPUs out "
            "of service. Or the driver that `grapnel rollback` brought back is not as expected"
        ),
        "bring the node back, repair or reboot it; then `grapnel apply`, or `grapnel rollback NODE`",
    ),
    Phase.RESUME: (
        (
            "the driver is verified, but the node could not be reached any more, or does not offer its GPUs; it stays "
            "cordoned"
        ),
        "bring the node back; on it: `systemctl status grapnel-node`; then `grapnel apply`",
    ),
    Phase.ROLLBACK: (
        (
            "quarantined: its upgrade failed, and so did the way back, or the former driver is not as it was; it stays "
            "cordoned. The reason has both"
        ),
        (
            "`grapnel-driver status` on the node shows each step; repair or reboot it, then `grapnel apply`, or "
            "`grapnel rollback NODE`"
        ),
    ),
}
GIVE_UP: Final = (
    "To give up on a node and have it for yourself: `grapnel abandon NODE`; with `--uncordon` it is put back into "
    "service as it stands"
)

WORKING: Final = {
    phase: Situation(phase.value, phase.value, means, follows) for phase, (means, follows) in _WORKING.items()
}
LEFT: Final = {
    phase: Situation(
        f"left-in-{phase}",
        f"left in {phase}",
        means,
        "nothing, until the next run",
        _LEFT_TODO.get(phase, _GO_ON),
        needs_somebody=True,
    )
    for phase, means in _LEFT.items()
}
FAILED_IN: Final = {
    phase: Situation(
        f"failed-in-{phase}",
        f"failed in {phase}",
        means,
        "the next run begins with it: drain again, or verify if it is as declared by then",
        todo,
        needs_somebody=True,
    )
    for phase, (means, todo) in _FAILED.items()
}

FAILED_REBOOT: Final = Situation(
    "failed-in-reboot",
    "failed in its reboot",
    "it has not come back from a reboot, or not with the driver and the GPUs that it had; it stays cordoned, with its "
    "GPUs out of service",
    "the next run begins with it, and does not reboot it again if it has left the boot that was to end",
    "bring the node back, or repair what the reason names; then `grapnel reboot NODE`",
    needs_somebody=True,
)
LEFT_REBOOTING: Final = Situation(
    "left-rebooting",
    "left in its reboot",
    "it is out of service, reboots or has rebooted, and nobody is at it",
    "nothing, until the next run",
    "`grapnel reboot NODE`: it begins where that one stopped, and reboots no node twice",
    needs_somebody=True,
)
REBOOTING: Final = Situation(
    "rebooting",
    "rebooting",
    "it reboots, by `grapnel reboot`; what a boot forgets (MIG) is restored then",
    "verify, when it answers in another boot; failed, if it does not within half an hour",
)
FAILED_MIG: Final = Situation(
    "failed-in-mig",
    "failed in a change of its MIG layout",
    "its GPUs could not be divided as the new layout has it, or are not so afterwards, with the driver that it had; it "
    "stays cordoned, with its GPUs out of service",
    "it counts as a failure; the next apply begins with it",
    "on the node: `grapnel-node mig plan`; correct the layout, or end what is in the way, then `grapnel apply`",
    needs_somebody=True,
)
DIVIDING: Final = Situation(
    "dividing",
    "dividing its GPUs",
    "its GPUs are divided by MIG as another layout has it",
    "verify; if a GPU is in use or has no room, it has failed",
)
CHANGING_OVER: Final = Situation(
    "changing-over",
    "changing over",
    "it gives its GPUs to pods by another interface from now on (`plugin.interface`), and serves meanwhile; pods keep "
    "the GPUs that they have, which are withheld until they end",
    "done, when its kubelet or the API has what it offers; else it has the former interface again",
)
LEFT_CHANGING_OVER: Final = Situation(
    "left-changing-over",
    "left changing over",
    "it serves, with the former interface or the new one, and nobody is at it",
    "nothing, until the next run",
    _GO_ON,
    needs_somebody=True,
)
FAILED_INTERFACE: Final = Situation(
    "failed-changing-over",
    "failed to change over",
    "pods cannot be given its GPUs by the new interface, and the way back to the former one failed as well; it takes "
    "pods, and those that have GPUs go on",
    "the next run begins with it",
    "on the node: `grapnel-node offered`, and `journalctl -u grapnel-node`; then `grapnel apply`",
    needs_somebody=True,
)
RETURNED_INTERFACE: Final = Situation(
    "returned-to-interface",
    "has its former interface",
    "pods could not be given its GPUs by the new interface; it gives them by the former one again, which was verified",
    "the next run tries it again",
    "correct what the reason names, then `grapnel apply`; or declare the interface that it has, and apply",
    needs_somebody=True,
)
AT_WORK: Final = (*WORKING.values(), REBOOTING, DIVIDING, CHANGING_OVER)

# In the order in which they are shown: what needs an administrator first.
SITUATIONS: Final = (
    *FAILED_IN.values(),
    FAILED_REBOOT,
    FAILED_MIG,
    FAILED_INTERFACE,
    FAILED,
    UNRELATED,
    CHANGED_SINCE,
    RETURNED,
    RETURNED_INTERFACE,
    PUT_BACK,
    UNCLEAR,
    *LEFT.values(),
    LEFT_REBOOTING,
    LEFT_CHANGING_OVER,
    NOT_BEGUN,
    NOT_READY,
    SHORT_OF_GPUS,
    SILENT,
    NO_REPORT,
    LAST_RUN_FAILED,
    *AT_WORK,
    WAITING,
    SKIPPED,
    CORDONED,
    DONE,
    WITHOUT_DRIVER,
    IDLE,
)
