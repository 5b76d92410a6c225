"""What a ResourceClaim says that it was given of this node. Pure.

Everything is the scheduler's: the status of the claim, which no author of a pod can write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from plugin.base.documents import list_of, member, members, text, truth
from plugin.base.errors import ClaimError
from plugin.dra.configs import find_configs, parse_quantity
from plugin.publication.node_object.api.messages import Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugin.dra.configs import ClaimConfig

_TEXT = text(253)


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
    memory_bytes: int = 0  # the same, of one whose memory is shared
    configs: tuple[ClaimConfig, ...] = ()  # of the claim, and which of its requests it is
    full_request: str = ""  # with the name of the alternative


def read_claim(claim: ClaimName) -> Request:
    """Ask for a claim."""
    path = f"/apis/resource.k8s.io/v1/namespaces/{quote(claim.namespace)}/resourceclaims/{quote(claim.name)}"
    return Request("GET", path, "get", "resourceclaims")


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
        rows = member(devices, "config", list_of(members), ())
    except ValueError as error:
        raise ClaimError(f"{claim} has no form that is known: {error}") from error
    if uid != claim.uid:
        raise ClaimError(f"{claim} is another one by now: the pod's was deleted")
    if not found:
        raise ClaimError(f"{claim} was given nothing of {driver}")
    try:
        configs = find_configs(rows, driver)
    except ValueError as error:
        raise ClaimError(f"{claim}: {error}", "docs/dra.md says which configs are served") from error
    return tuple(each._replace(configs=configs) for each in found)


def _result(row: Mapping[str, Any]) -> Result:
    consumed = member(row, "consumedCapacity", members, {})
    return Result(
        member(row, "request", _TEXT).partition("/")[0],
        member(row, "pool", _TEXT),
        member(row, "device", _TEXT),
        member(row, "adminAccess", truth, default=False),
        member(row, "shareID", _TEXT, ""),
        parse_quantity(consumed.get("shares", "1")),
        parse_quantity(consumed.get("memory", "0")),
        full_request=member(row, "request", _TEXT),
    )
