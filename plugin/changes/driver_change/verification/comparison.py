"""Compares how GPUs are set up with the declaration, else with how they were at the release: "not worse". Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.changes.driver_change.verification.model import Check, judge
from plugin.driver.gpu_state import COMPLETED, GpuState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from plugin.changes.driver_change.verification.model import Found, Wanted
    from plugin.driver.gpu_state import Fabric, MigDevice

_NOT_COMPARED = "not compared: nothing is declared or remembered"
_MIG_HINT = (
    "a reload or reboot forgets mig devices: run nvidia-mig-parted, or nvidia-smi mig -cgi … -C, then verify again"
)


def _layout(mig: tuple[MigDevice, ...] | None) -> str:
    return "mig is off" if mig is None else ", ".join(map(str, mig)) or "mig is on, without a device"


def _is_same_layout(wanted: tuple[MigDevice, ...] | None, found: tuple[MigDevice, ...] | None) -> bool:
    """Compare as far as both sides say where devices lie."""
    if wanted is None or found is None:
        return wanted is found
    left = list(found)
    for device in sorted(wanted, key=lambda one: one.start is None):  # those that say where first
        match = next((one for one in left if _is_same_device(device, one)), None)
        if match is None:
            return False
        left.remove(match)
    return not left


def _is_same_device(wanted: MigDevice, found: MigDevice) -> bool:
    is_place = wanted.start is None or found.start is None or wanted.start == found.start
    is_size = wanted.size is None or found.size is None or wanted.size == found.size
    return wanted.short_profile == found.short_profile and is_place and is_size


def check_mig(want: Wanted, found: Found) -> Check:
    """Check that every GPU has the MIG devices that are declared, else those that it had."""
    expected = {**{uuid: state.mig for uuid, state in want.before.items()}, **want.mig}
    problems = []
    for uuid, state in found.states.items():
        if uuid in expected and not _is_same_layout(expected[uuid], state.mig):
            problems.append((uuid, f"{_layout(state.mig)}, expected: {_layout(expected[uuid])}"))
    absent = [uuid for uuid in want.mig if uuid not in found.states]
    problems += [(uuid, "is not there to have its mig devices compared") for uuid in absent]
    notes = [_MIG_HINT] if problems else []
    check = judge("mig", want, found, problems=problems, notes=notes if expected else [_NOT_COMPARED])
    told = {uuid: state.mig for uuid, state in found.states.items()}
    return Check("mig", _shown(expected) if expected else None, _shown(told), check.ok, check.message)


def _shown(layouts: Mapping[str, tuple[MigDevice, ...] | None]) -> tuple[str, ...]:
    return tuple(f"{uuid}: {_layout(mig)}" for uuid, mig in layouts.items() if mig is not None)


def fabric_problem(want: Wanted, uuid: str, fabric: Fabric | None) -> str:
    """Return what is wrong with the place of a GPU in its NVLink fabric, "" for nothing.

    A GPU that has a fabric must have joined it, unless it had not before either.
    """
    declared, before = want.fabric.get(uuid), want.before.get(uuid)
    if declared is not None:
        cluster, clique = declared.cluster, declared.clique
    elif before is not None and before.fabric is not None and before.fabric.state == COMPLETED:
        cluster, clique = before.fabric.cluster, before.fabric.clique
    elif before is not None or fabric is None:
        return ""
    else:
        cluster, clique = None, None
    if fabric is None:
        return "has no nvlink fabric any more: systemctl status nvidia-fabricmanager"
    if fabric.state != COMPLETED:
        return f"the nvlink fabric is not ready ({fabric.state}): systemctl status nvidia-fabricmanager"
    is_same = cluster in {None, fabric.cluster} and clique in {None, fabric.clique}
    return (
        ""
        if is_same
        else f"is in fabric {fabric}, expected {cluster or 'any cluster'}.{'?' if clique is None else clique}"
    )


def check_fabric(want: Wanted, found: Found) -> Check:
    """Check that every GPU is in the NVLink fabric, and in the one where it was."""
    uuids = dict.fromkeys([*found.states, *want.fabric])
    fabrics = {uuid: found.states.get(uuid, GpuState()).fabric for uuid in uuids}
    problems = [(uuid, problem) for uuid, fabric in fabrics.items() if (problem := fabric_problem(want, uuid, fabric))]
    check = judge("fabric", want, found, problems=problems)
    told = tuple(f"{uuid}: {fabric}" for uuid, fabric in fabrics.items() if fabric is not None)
    return Check("fabric", None, told, check.ok, check.message)


def check_nvlink(want: Wanted, found: Found) -> Check:
    """Check that no GPU has fewer active NVLinks than it had."""
    problems = []
    for uuid, before, now in _pairs(want, found):
        if before.links_active is not None and now.links_active is not None and now.links_active < before.links_active:
            problems.append((uuid, f"{now.links_active} of {before.links_active} nvlinks are active"))
    return judge("nvlink", want, found, problems=problems, notes=() if want.before else [_NOT_COMPARED])


def _ecc(before: GpuState, now: GpuState) -> str:
    if None in {before.ecc_enabled, now.ecc_enabled} or before.ecc_enabled == now.ecc_enabled:
        return ""
    return (
        f"ecc is {'on' if now.ecc_enabled else 'off'}, and was not before: nvidia-smi -e {int(before.ecc_enabled or 0)}"
    )


def _uncorrected(before: GpuState, now: GpuState) -> str:
    more = (now.uncorrected or 0) - (before.uncorrected or 0)
    return (
        f"{more} more uncorrected memory errors"
        if None not in {before.uncorrected, now.uncorrected} and more > 0
        else ""
    )


def _rows(before: GpuState, now: GpuState) -> str:
    if now.rows_failed and not before.rows_failed:
        return "a memory row could not be remapped: have the gpu exchanged"
    return (
        "a row remap waits for a reset: nvidia-smi --gpu-reset" if now.rows_pending and not before.rows_pending else ""
    )


def _pages(before: GpuState, now: GpuState) -> str:
    is_new = now.pages_pending and not before.pages_pending
    return "a page waits to be retired: nvidia-smi --gpu-reset" if is_new else ""


_MEMORY: tuple[Callable[[GpuState, GpuState], str], ...] = (_ecc, _uncorrected, _rows, _pages)


def check_memory(want: Wanted, found: Found) -> Check:
    """Check that the memory of no GPU is worse than it was: ECC mode, errors, remapped rows, retired pages."""
    problems = [
        (uuid, problem)
        for uuid, before, now in _pairs(want, found)
        for rule in _MEMORY
        if (problem := rule(before, now))
    ]
    return judge("memory", want, found, problems=problems, notes=() if want.before else [_NOT_COMPARED])


def _pairs(want: Wanted, found: Found) -> Iterator[tuple[str, GpuState, GpuState]]:
    for uuid, now in found.states.items():
        if uuid in want.before:
            yield uuid, want.before[uuid], now
