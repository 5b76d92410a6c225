"""Reads the GpuStacks of a cluster once, for verbs that only look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from provision.cluster.errors import ForbiddenError, RefusedError
from provision.cluster.kubernetes.api.client import NOT_FOUND
from provision.cluster.kubernetes.api.exchange import Request, StatusError
from provision.controller.stacks.decode import decode_stack
from provision.controller.stacks.follower import STACKS, Followed, read_status
from provision.controller.stacks.membership import members
from provision.controller.stacks.model import Stack, StackObject
from provision.controller.stacks.status import ConditionType
from provision.rollout.status.model import StackSeen, StackTrouble

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provision.cluster.kubernetes.api.client import Api
    from provision.controller.stacks.model import Unreadable
    from provision.controller.stacks.status import StackStatus

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


def see_stacks(api: Api, labels: Mapping[str, Mapping[str, str]]) -> tuple[tuple[StackSeen, ...], str]:
    """Return how every GpuStack says that it stands, in the order of names, and why that cannot be read.

    ``labels`` are those of the cluster's Nodes, by their names.
    """
    try:
        objects = _objects(api) or []
    except (ForbiddenError, RefusedError) as error:
        if not _is_known(api):
            return (), ""
        hint = f" ({error.hint})" if error.hint else ""
        return (), f"how GpuStacks stand is not known: {error.message}{hint}"
    objects = sorted(objects, key=lambda each: each.metadata.name)
    stacks = {each.metadata.name: decode_stack(msgspec.to_builtins(each)) for each in objects}
    owned = members(stacks.values(), labels).owned
    return tuple(_seen(each, stacks[each.metadata.name], owned) for each in objects), ""


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


def _seen(thing: StackObject, stack: Stack | Unreadable, owned: Mapping[str, tuple[str, ...]]) -> StackSeen:
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
        owned=frozenset(owned.get(stack.name, ())),
        declared=stack.spec.driver if isinstance(stack, Stack) and not stack.is_going else None,
        exposure=_exposure(status),
        plugin=stack.spec.plugin if isinstance(stack, Stack) and not stack.is_going else None,
        handlers=stack.spec.runtime.handlers if isinstance(stack, Stack) and stack.spec.runtime.enabled else (),
    )


def _exposure(status: StackStatus) -> str:
    apart = (each for each in status.conditions if each.type == ConditionType.CONTROLLER_APART)
    return next((each.message for each in apart if each.status == "False"), "")
