"""Keeps GpuStacks from going before what they were about to do on Nodes has come to an end, by a finalizer.

It is there only while it is needed: from before the first node leaves service until all are back, and for as long as
there is a stack that is to be taken off its Nodes. Any other stack goes at once, whether a controller runs or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from provision.controller.stacks.model import Stack, WhenDeleted
from provision.controller.stacks.writer import FINALIZER, read_stack, write_finalizer
from provision.rollout.errors import ClusterError

if TYPE_CHECKING:
    from provision.cluster.kubernetes.api.client import Api
    from provision.controller.decision.choice import Order
    from provision.controller.stacks.follower import Followed, StackBook

_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class Keeper:
    """Puts the finalizer on stacks, and takes it off; `keep` may be called from any thread."""

    api: Api
    book: StackBook

    def keep(self, order: Order) -> None:
        """Return when the stack of an order stays until it is let go. Raises ClusterError where it has gone already."""
        stack = order.stack
        for _attempt in range(_ATTEMPTS):
            found = read_stack(self.api, stack.name)
            meta = None if found is None else found.metadata
            if meta is not None and meta.uid == stack.uid and FINALIZER in meta.finalizers:
                return
            if meta is None or meta.uid != stack.uid or meta.deletion_timestamp is not None:
                raise ClusterError(f"GpuStack {stack.name} was deleted meanwhile: nothing begins for it")
            version = meta.resource_version
            written = write_finalizer(self.api, stack.name, stack.uid, version, meta.finalizers, wanted=True)
            if written is not None:
                self.book.put(written)
                return
        raise ClusterError(f"GpuStack {stack.name} is changed by others all the time")

    def settle(self, followed: Followed, order: Order | None, *, is_idle: bool) -> bool:
        """Put the finalizer on a stack, or take it off, as it is needed; return whether nodes may be changed for it.

        One request where it is not as it should be, and none otherwise. Raises ClusterError.
        """
        stack, has_it = followed.stack, FINALIZER in followed.finalizers
        wanted = is_needed(stack, order, is_idle=is_idle)
        if wanted == has_it or (not wanted and not is_idle) or (wanted and stack.is_going):
            return True
        version = str(followed.version)
        written = write_finalizer(self.api, stack.name, stack.uid, version, followed.finalizers, wanted=wanted)
        if written is not None:
            self.book.put(written)
        return written is not None or not wanted


def is_needed(stack: object, order: Order | None, *, is_idle: bool) -> bool:
    """Tell whether a stack has to stay although it is deleted; without an ``order`` it cannot be used. Pure."""
    if not isinstance(stack, Stack) or order is None:
        return not is_idle
    if stack.is_going:
        return bool(order.left) or not is_idle
    is_out = any(node.is_in_flight for node in order.members.values())
    return stack.when_deleted is WhenDeleted.REMOVE or is_out
