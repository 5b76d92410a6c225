"""What a ResourceClaim says that it was given of this node. Pure.

Everything is the scheduler's: the status of the claim, which no author of a pod can write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from plugin.base.documents import list_of, member, members, text, truth
from plugin.base.errors import ClaimError

if TYPE_CHECKING:
    from collections.abc import Mapping

_TEXT = text(253)
_CONFIG = "resource.nvidia.com/v1beta1"
_KINDS = ("GpuConfig", "MigDeviceConfig")


class ClaimName(NamedTuple):
    """A claim, as the kubelet names it."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"claim {self.namespace}/{self.name}"


class Result(NamedTuple):
    """One device of a claim. `request` is the claim's own name for it, without that of an alternative."""

    request: str
    pool: str
    device: str
    is_admin: bool = False  # sees a device without having it
    share_id: str = ""  # of a device that several claims have
    shares: int = 1  # how much of it


def find_results(document: Mapping[str, Any], claim: ClaimName, driver: str) -> tuple[Result, ...]:
    """Return the devices of this driver that a claim was given; raises ClaimError."""
    try:
        uid = member(member(document, "metadata", members), "uid", _TEXT)
        status = member(document, "status", members, {})
        allocation = member(status, "allocation", members, {})
        devices = member(allocation, "devices", members, {})
        rows = member(devices, "results", list_of(members), ())
        results = [row for row in rows if row.get("driver") == driver]
        found = tuple(map(_result, results))
        configs = member(devices, "config", list_of(members), ())
    except ValueError as error:
        raise ClaimError(f"{claim} has no form that is known: {error}") from error
    if uid != claim.uid:
        raise ClaimError(f"{claim} is another one by now: the pod's was deleted")
    if not found:
        raise ClaimError(f"{claim} was given nothing of {driver}")
    for row in configs:
        opaque = row.get("opaque")
        if isinstance(opaque, dict) and opaque.get("driver") == driver and (why := why_not_served(opaque)):
            raise ClaimError(f"{claim} has a config that is not served: {why}")
    return found


def why_not_served(opaque: Mapping[str, Any]) -> str:
    """Return what of a configuration of NVIDIA's form this driver does not do, "" where it does all.

    GPUs and MIG devices whose time is sliced as the driver does by itself (api/nvidia.com/resource/v1beta1 of NVIDIA's
    driver, 0.4.0). What is not known is never passed over: a claim would have less than it asked for.
    """
    parameters = opaque.get("parameters")
    if not isinstance(parameters, dict):
        return "it has no parameters"
    kind = parameters.get("kind")
    if parameters.get("apiVersion") != _CONFIG or kind not in _KINDS:
        return f"{str(parameters.get('apiVersion'))[:64]} {str(kind)[:64]}"
    sharing = parameters.get("sharing")
    unknown = parameters.keys() - {"apiVersion", "kind", "sharing"}
    if sharing is not None and not isinstance(sharing, dict):
        return "sharing must be an object"
    sharing = sharing or {}
    unknown |= sharing.keys() - {"strategy", "timeSlicingConfig", "mpsConfig"}
    strategy = sharing.get("strategy", "TimeSlicing")
    if strategy != "TimeSlicing" or sharing.get("mpsConfig") is not None:
        return f"sharing by {str(strategy)[:64]}: shares through MPS are declared for the node (docs/dra.md)"
    slicing = sharing.get("timeSlicingConfig") or {}
    if not isinstance(slicing, dict) or slicing.get("interval", "Default") != "Default":
        return "an interval of time slices: the driver's own is the only one"
    unknown |= slicing.keys() - {"interval"}
    return f"unknown key {min(unknown)[:64]}" if unknown else ""


def _count(value: object) -> int:
    """Return a whole number of shares, as a quantity writes it."""
    if not isinstance(value, str) or not (value.isascii() and value.isdecimal()):
        raise ValueError("consumedCapacity has shares that are no number")
    return int(value)


def _result(row: Mapping[str, Any]) -> Result:
    return Result(
        member(row, "request", _TEXT).partition("/")[0],
        member(row, "pool", _TEXT),
        member(row, "device", _TEXT),
        member(row, "adminAccess", truth, default=False),
        member(row, "shareID", _TEXT, ""),
        _count(member(row, "consumedCapacity", members, {}).get("shares", "1")),
    )
