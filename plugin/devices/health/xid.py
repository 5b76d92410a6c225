"""XID errors by number: what each one asks for, and who says so.

Sources: `catalogue` is NVIDIA's XID catalogue (docs.nvidia.com/deploy/xid-errors, column "immediate action": IGNORE is
noted, RESTART_APP an application error, RESET_GPU a reset, RESTART_BM and RESTART_VM a reboot, UPDATE_SWFW a reload, a
workflow whose answer depends on more than the number passes by evidence); `device plugin` is the list that NVIDIA's
Kubernetes device plugin ignores by default (internal/rm/health.go); `gke` the list of Google's plugin
(pkg/gpu/nvidia/health_check), which clears with a new boot. Where the device plugin and the catalogue differ (43, 45,
68, 109), the device plugin is followed: a node that comes from it must not lose GPUs that it kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from plugin.devices.health.conditions import LOST
from plugin.devices.health.model import Class, Policy

if TYPE_CHECKING:
    from collections.abc import Sequence

_EVERY = {"all", "xids"}
_CATALOGUE, _PLUGIN, _GKE = "catalogue", "device plugin", "gke"


class Xid(NamedTuple):
    """One number: what it means in a few words, its class, and the source of the class."""

    number: int
    meaning: str
    kind: Class
    source: str = _CATALOGUE


_A, _N, _P, _R = Class.APPLICATION, Class.NOTED, Class.PASSING, Class.RESET

ROWS = (
    Xid(8, "a channel stopped processing", _A),
    Xid(11, "invalid or corrupted push buffer", _A),
    Xid(13, "graphics engine exception", _A, _PLUGIN),
    Xid(14, "unexpected channel error", _N),
    Xid(25, "invalid or illegal push buffer", _A),
    Xid(31, "memory page fault", _A, _PLUGIN),
    Xid(32, "invalid push buffer", _A),
    Xid(37, "method that the firmware does not know", _N),
    Xid(38, "firmware watchdog", _N),
    Xid(43, "a channel was reset", _A, _PLUGIN),
    Xid(44, "fault during a context switch", _N),
    Xid(45, "channels removed, mostly after another error", _A, _PLUGIN),
    Xid(46, "gpu timeout", _R),
    Xid(48, "double-bit memory error", _R),
    Xid(54, "auxiliary power is not connected: clocks are reduced", _N),
    Xid(60, "video processor exception", _A),
    Xid(62, "power controller halted", _R),
    Xid(63, "a memory row or page was retired", _N),
    Xid(64, "a memory row or page could not be retired", _R),
    Xid(66, "illegal access by a driver", _N),
    Xid(67, "firmware verification", _N),
    Xid(68, "video decoder exception", _A, _PLUGIN),
    Xid(69, "graphics engine class error", _A),
    Xid(74, "nvlink error", _P),
    Xid(78, "vgpu start error", Class.RELOAD),
    Xid(79, "the gpu has fallen off the bus", Class.REBOOT),
    Xid(80, "corrupted push buffer", _A),
    Xid(82, "jpeg engine 0", _A),
    Xid(86, "optical flow engine 0", _A),
    Xid(92, "high rate of corrected memory errors", _N),
    Xid(93, "the board's flash was written too often", _N),
    Xid(94, "contained memory error", _A),
    Xid(95, "uncontained memory error", _R),
    Xid(106, "test message", _N),
    Xid(107, "test message", _N),
    Xid(108, "nvlink translation error at the other end", _N),
    Xid(109, "context switch timeout", _A, _PLUGIN),
    Xid(110, "security fault", _R),
    Xid(119, "gpu firmware does not answer", _R),
    Xid(120, "gpu firmware error", _R),
    Xid(121, "chip-to-chip link error", _N),
    Xid(123, "power controller cannot write its memory", Class.REBOOT, _GKE),
    Xid(136, "nvlink training failed", _R),
    Xid(137, "nvlink privilege error", _N),
    Xid(139, "optical flow engine 1", _A),
    Xid(140, "unrecovered memory error", _R),
    Xid(141, "fast path error", _N),
    Xid(142, "video encoder 3", _P),
    Xid(143, "gpu initialisation failed", _R),
    *(Xid(number, "nvlink error of the fifth generation", _P) for number in range(144, 151)),
    Xid(151, "key rotation failed", Class.REBOOT),
    Xid(152, "deep learning accelerator, memory", _N),
    Xid(153, "deep learning accelerator, timeout", _N),
    Xid(154, "the driver recommends another recovery, for an error of its own number", _N),
    Xid(155, "nvlink error told by software", _R),
    Xid(156, "a resource was retired", _R),
    Xid(157, "a resource could not be retired", _N),
    Xid(158, "fatal gpu timeout", _R),
    Xid(159, "chip interface error", _P),
    Xid(160, "a memory channel was retired", _N),
    Xid(161, "a memory channel could not be retired", _N),
    *(Xid(number, "power smoothing", _N) for number in range(162, 166)),
    Xid(171, "uncorrectable memory error: 94 or 95 says how far it reached", _N),
    Xid(172, "uncorrectable cache error: 94 or 95 says how far it reached", _N),
    *(Xid(number, "copy engine", _A) for number in (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136))),
    *(Xid(number, "video decoder", _A) for number in (83, 84, 88, 89, 96, 97, 98)),
    *(Xid(number, "jpeg engine", _A) for number in range(99, 106)),
)

XIDS = {row.number: row for row in ROWS}


def find_xid(number: int) -> Xid:
    """Return what is known of a number; one that is in no list may pass, as nothing says that it is harmless."""
    return XIDS.get(number) or Xid(number, "in no list", Class.PASSING, "")


def plan_policy(disabled: Sequence[str], enabled: Sequence[str]) -> Policy:
    """Return what DP_DISABLE_HEALTHCHECKS and DP_ENABLE_HEALTHCHECKS come to: numbers, "xids" and "all".

    NVIDIA's plugin checks nothing but XID errors, and takes both words for the same.
    """
    return Policy(
        skipped_xids=_numbers(disabled),
        enforced_xids=_numbers(enabled),
        skips_all_xids=bool(_EVERY & set(disabled)),
        enforces_all_xids=bool(_EVERY & set(enabled)),
        skips_conditions="all" in disabled,
    )


def _numbers(words: Sequence[str]) -> frozenset[int]:
    return frozenset(int(word) for word in words if word not in _EVERY)


def is_skipped(cause: str, policy: Policy) -> bool:
    """Whether the administrator wants no GPU condemned for a cause."""
    if cause == LOST:
        return False
    if not cause.startswith("xid "):
        return policy.skips_conditions
    number = int(cause[len("xid ") :])
    is_enforced = policy.enforces_all_xids or number in policy.enforced_xids
    return not is_enforced and (policy.skips_all_xids or number in policy.skipped_xids)


def judge_xid(number: int, policy: Policy) -> Xid:
    """Return it as the operator wants it judged: a skipped one is only noted, an enforced one condemns."""
    known = find_xid(number)
    if policy.enforces_all_xids or number in policy.enforced_xids:
        return Xid(number, known.meaning, max(known.kind, Class.PASSING), "configuration")
    if is_skipped(f"xid {number}", policy):
        return Xid(number, known.meaning, min(known.kind, Class.NOTED), "configuration")
    return known
