"""What a reading says of a GPU's condition, besides XID errors. Pure.

Sources: NVIDIA's memory error management for NVIDIA Ampere and later (a pending row takes a reset, a failed one an
exchange) and its recovery action flag, dynamic page retirement (a pending page takes a reload of the driver), NVML's
reference. NVIDIA's DRA driver judges recovery actions the same way (cmd/gpu-kubelet-plugin/device_health.go).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.devices.health.model import Class, Sighting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plugin.devices.health.model import GpuHealth
    from plugin.driver.reading import Counters, Reading

LOST = "lost"
NVLINK = "nvlink down"
RECOVERY = "recovery action"
ECC = "ecc"

_RECOVERY = {  # NVML_GPU_RECOVERY_ACTION_*: what it asks for, and what a person does about it
    1: (Class.RESET, "a reset: end what uses the gpu, then nvidia-smi --gpu-reset"),
    2: (Class.REBOOT, "a reboot of the node"),
    3: (Class.PASSING, "an end of its peer-to-peer traffic: end what uses it together with other gpus"),
    4: (Class.RESET, "a drain and a reset: what runs may go on with less capacity, nothing new may start"),
    5: (Class.NOTED, "a recovery of its imex domain"),
    6: (Class.RESET, "a reset of its pcie bus"),
    7: (Class.REBOOT, "a reboot of the whole system"),
}


def lost(reason: str) -> Sighting:
    """Return the sighting of a GPU that is counted and does not answer, or is not counted any more."""
    return Sighting(LOST, Class.PASSING, f"it does not answer: {reason}")


def is_set_back(before: Counters, now: Counters) -> bool:
    """Whether a counter that only grows is lower: the GPU has been initialised again in between."""
    pairs = (
        (before.energy_mj, now.energy_mj),
        (before.volatile_corrected, now.volatile_corrected),
        (before.volatile_uncorrected, now.volatile_uncorrected),
    )
    return any(old is not None and new is not None and new < old for old, new in pairs)


def see_conditions(before: GpuHealth, reading: Reading, *, is_alone: bool) -> Iterator[Sighting]:
    """Yield what is wrong now. `is_alone`: no other GPU of the node is in trouble.

    A link has two ends: while the GPU at one end is absent or being reset, the links of its neighbours are down, too,
    and that is no fault of theirs.
    """
    yield from _memory(reading)
    yield from _new_errors(before.counters, reading)
    if reading.recovery_action:
        other = (Class.PASSING, f"action {reading.recovery_action}, which this version does not know")
        kind, words = _RECOVERY.get(reading.recovery_action, other)
        yield Sighting(RECOVERY, kind, f"the driver asks for {words}")
    best, links = before.links_best, reading.links_active
    if best is not None and links is not None and links < best:
        kind = Class.PASSING if is_alone else Class.NOTED
        yield Sighting(NVLINK, kind, f"{best - links} of {best} nvlinks are down")
    for slowdown in reading.slowdowns:
        yield Sighting(slowdown, Class.NOTED, f"clocks are held down: {slowdown}")


def _memory(reading: Reading) -> Iterator[Sighting]:
    if reading.rows_failed:
        yield Sighting("rows failed", Class.REPLACE, "a memory row could not be remapped")
    if reading.rows_pending:
        yield Sighting("rows pending", Class.RESET, "a memory row waits to be remapped")
    if reading.pages_pending:
        yield Sighting("pages pending", Class.RELOAD, "a memory page waits to be retired")
    if reading.ecc_mode_pending:
        yield Sighting("ecc mode pending", Class.NOTED, "another ecc mode waits for a reset")
    if reading.aggregate_uncorrected:
        detail = f"{reading.aggregate_uncorrected} uncorrected memory errors in its life"
        yield Sighting("ecc aggregate", Class.NOTED, detail)


def _new_errors(before: Counters, reading: Reading) -> Iterator[Sighting]:
    """Tell errors since the last reading; of those before the first one it is not known whether they were dealt with.

    A GPU that remaps rows contains an error and says so (XID 94, 95); an older one needs a reset.
    """
    old, new = before.volatile_uncorrected, reading.counters.volatile_uncorrected
    if old is None or new is None or new <= old:
        return
    kind = Class.RESET if reading.rows_pending is None else Class.PASSING
    yield Sighting(ECC, kind, f"{new - old} new uncorrected memory errors")
