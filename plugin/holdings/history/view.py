"""What `explain` says: the history in the form of `--json`, contract `docs/contracts/explanation`. Pure.

The daemon answers with it on the admin socket, and the tool makes the same of the file where no daemon runs.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from plugin.base.errors import HistoryError
from plugin.devices.allocation.preference.choice import Rule
from plugin.devices.sharing import device_of
from plugin.holdings.history.model import STATES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugin.holdings.history.ledger import Ledger
    from plugin.holdings.history.model import Allocation, Choice, Claim, DeviceChange

SCHEMA = "grapnel.dev/explanation/v1alpha1"
MAX_LAST = 1000
NOT_ASKED = "the kubelet did not ask: there was no choice"
_REFUSED = "nobody: it was refused"
_DOUBT = "not known: somebody was still listed with these devices, and the kubelet did not answer"
_PENDING = "not known yet: the kubelet lists no container with these devices so far"
_UNSEEN = (
    "not known: the kubelet listed no container with these devices: an init container's, or a pod that ended first"
)
_SEVERAL = "ambiguous: the kubelet lists several containers with these devices"
_UNCERTAIN = "not certain: the daemon did not run all the time in between"


def utc_of(at: float) -> str:
    """Return a time in UTC (ISO 8601), to the millisecond."""
    milliseconds = round(at * 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(milliseconds // 1000))}.{milliseconds % 1000:03d}Z"


def explain(ledger: Ledger, about: str, last: int) -> dict[str, object]:
    """Return the last allocations and the devices; all, or of a pod or device. Raises HistoryError.

    A pod is `namespace/name` or `name`; a device its id, the beginning of it where that is enough, or its index.
    """
    device = _device_of(ledger, about) if about else ""
    chosen = [one for one in ledger.allocations.values() if _is_about(one, about, device)]
    if about and not device and not chosen:
        hint = (
            "a pod is NAMESPACE/NAME or NAME, a device its uuid or index; without one: everything. Pods without an "
            "allocation are not here: why a container that asks for a GPU got none is in `journalctl -t grapnel-hook`"
        )
        raise HistoryError(f"nothing is known of {about[:128]!a}", hint)
    devices = (device,) if device else _devices_of(ledger, chosen, is_all=not about)
    superseded = _superseded(ledger)
    shown = chosen[-last:] if last else []
    return {
        "schema": SCHEMA,
        "allocations": [_allocation(one, is_last=one.number not in superseded) for one in reversed(shown)],
        "leftOff": len(chosen) - len(shown),
        "devices": [_device(ledger, each) for each in devices],
        "indices": dict(ledger.indices),
        "node": [_change(change) for change in ledger.changes.get("", ())],
    }


def _is_about(one: Allocation, about: str, device: str) -> bool:
    if device:
        return _has(one, device)
    names = {
        name for claim in one.claims for name in (claim.holder.pod, f"{claim.holder.namespace}/{claim.holder.pod}")
    }
    return not about or about in names


def _has(one: Allocation, device: str) -> bool:
    """Whether an allocation is of this device, or of a unit of it."""
    return any(device in {each, device_of(each)} for each in one.devices)


def _device_of(ledger: Ledger, about: str) -> str:
    """Return the device or unit that is meant, "" where none is."""
    units = {one for each in ledger.allocations.values() for one in each.devices}
    known = {*ledger.changes, *ledger.indices, *map(device_of, units)}
    if about in known or about in units:
        return about
    if about.isdecimal():
        found = [device for device, index in ledger.indices.items() if index == int(about[:8])]
        return found[0] if len(found) == 1 else ""
    found = sorted(device for device in known if device.lower().startswith(about.lower()))
    if len(found) > 1 and about.upper().startswith(("GPU-", "MIG-")):
        raise HistoryError(f"{about[:64]!a} is the beginning of {len(found)} devices", f"for example {found[0]}")
    return found[0] if len(found) == 1 and about.upper().startswith(("GPU-", "MIG-")) else ""


def _devices_of(ledger: Ledger, chosen: Sequence[Allocation], *, is_all: bool) -> tuple[str, ...]:
    """Return the devices by index; of a pod, those that it was given."""
    named = {device_of(device) for one in chosen for device in one.devices}
    found = {device for device in {*ledger.indices, *ledger.changes} if device and (is_all or device in named)}
    return tuple(sorted(found, key=lambda one: (ledger.indices.get(one, len(found)), one)))


def _superseded(ledger: Ledger) -> set[int]:
    """Return the numbers of allocations whose devices another container was given since."""
    later: set[str] = set()
    found = set()
    for one in reversed(ledger.allocations.values()):
        if not one.refused:
            if not later.isdisjoint(one.devices):
                found.add(one.number)
            later.update(one.devices)
    return found


def _allocation(one: Allocation, *, is_last: bool) -> dict[str, object]:
    followed = None
    if one.choice is not None and not one.refused:
        followed = set(one.choice.chosen) == set(one.devices)
    return {
        "number": one.number,
        "time": utc_of(one.at),
        "resource": one.resource,
        "devices": list(one.devices),
        "refused": one.refused,
        "pods": [_claim(claim) for claim in one.claims],
        "podsNote": _why_unknown(one, is_last=is_last),
        "preference": None if one.choice is None else _choice(one.choice),
        "followed": followed,
        "preferenceNote": "" if one.choice is not None or one.refused else NOT_ASKED,
    }


def _why_unknown(one: Allocation, *, is_last: bool) -> str:
    if one.refused:
        return _REFUSED
    if not one.claims:
        return _DOUBT if not one.is_joinable else _PENDING if is_last else _UNSEEN
    if len(one.claims) > 1:
        return _SEVERAL
    return "" if one.claims[0].is_certain else _UNCERTAIN


def _claim(claim: Claim) -> dict[str, object]:
    return {
        "namespace": claim.holder.namespace,
        "pod": claim.holder.pod,
        "container": claim.holder.container,
        "listed": utc_of(claim.listed_at),
        "gone": None if claim.gone_at is None else utc_of(claim.gone_at),
    }


def _choice(choice: Choice) -> dict[str, object]:
    rule = Rule.__members__.get(choice.rule)
    return {
        "free": choice.free,
        "available": list(choice.available),
        "required": list(choice.required),
        "size": choice.size,
        "chosen": list(choice.chosen),
        "rule": choice.rule.lower(),
        "reason": choice.rule if rule is None else rule.value,
        "considered": choice.considered,
        "cutOff": choice.cut_off,
        "candidates": [{"devices": list(one.devices), "score": one.score} for one in choice.scored()],
        "candidatesLeftOff": choice.left_off,
    }


def _device(ledger: Ledger, device: str) -> dict[str, object]:
    state = ledger.state_of(device)
    holders = [
        _claim(claim)
        for one in ledger.allocations.values()
        if _has(one, device)
        for claim in one.claims
        if claim.gone_at is None
    ]
    return {
        "id": device,
        "index": ledger.indices.get(device),
        "state": "unknown" if state is None else "unhealthy" if state.what == "unhealthy" else "healthy",
        "since": None if state is None else utc_of(state.at),
        "reason": "" if state is None else state.reason,
        "pods": holders,
        "history": [_change(change) for change in ledger.changes.get(device, ())],
    }


def _change(change: DeviceChange) -> dict[str, object]:
    return {
        "time": utc_of(change.at),
        "what": change.what,
        "cause": "" if change.what in STATES else change.cause,
        "class": change.kind,
        "reason": change.reason,
    }
