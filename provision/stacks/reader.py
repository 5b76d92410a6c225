"""Reads the GpuStacks of a cluster once, for verbs that only look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from provision.cluster.api import NOT_FOUND
from provision.cluster.errors import ForbiddenError, RefusedError
from provision.cluster.exchange import Request, StatusError
from provision.rollout.status.model import StackSeen, StackTrouble
from provision.stacks.decode import decode_stack
from provision.stacks.follower import STACKS, Followed, read_status
from provision.stacks.objects import StackObject

if TYPE_CHECKING:
    from provision.cluster.api import Api

GROUP: Final = "/apis/grapnel.dev"


def read_stacks(api: Api) -> dict[str, Followed] | None:
    """Return every GpuStack by its name; None where the cluster does not know the kind. Raises ClusterError."""
    objects = _objects(api)
    if objects is None:
        return None
    return {
        each.metadata.name: Followed(decode_stack(msgspec.to_builtins(each)), read_status(each.status))
        for each in objects
    }


def see_stacks(api: Api) -> tuple[tuple[StackSeen, ...], str]:
    """Return how every GpuStack says that it stands, in the order of names, and why that cannot be read."""
    try:
        objects = _objects(api) or []
    except (ForbiddenError, RefusedError) as error:
        if not _is_known(api):
            return (), ""
        hint = f" ({error.hint})" if error.hint else ""
        return (), f"how GpuStacks stand is not known: {error.message}{hint}"
    return tuple(_seen(each) for each in sorted(objects, key=lambda each: each.metadata.name)), ""


def _objects(api: Api) -> list[StackObject] | None:
    try:
        return [each for page in api.pages(STACKS, StackObject, expected=(NOT_FOUND,)) for each in page.items]
    except StatusError:
        return None


def _is_known(api: Api) -> bool:
    """Tell whether the cluster knows GpuStacks, which everybody may ask, unlike which there are."""
    request = Request(method="GET", path=GROUP)
    try:
        api.call(request, msgspec.Raw, expected=(NOT_FOUND,))
    except StatusError:
        return False
    except (ForbiddenError, RefusedError):
        return True
    return True


def _seen(thing: StackObject) -> StackSeen:
    status = read_status(thing.status)
    nodes = status.nodes
    return StackSeen(
        name=thing.metadata.name,
        state=status.state,
        message=status.message,
        driver=status.driver,
        nodes={
            "total": nodes.total,
            "asDeclared": nodes.as_declared,
            "changing": nodes.changing,
            "waiting": nodes.waiting,
            "failed": nodes.failed,
            "claimedTwice": nodes.claimed_twice,
        },
        troubles=tuple(StackTrouble(each.node, each.message) for each in status.troubles),
        is_outdated=status.observed_generation != thing.metadata.generation,
    )
