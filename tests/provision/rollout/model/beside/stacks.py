"""Keeps the GpuStack of the simulated cluster, and what is said of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from provision.controller.decision.fingerprint import of_stack
from provision.controller.rounds.keeper import is_needed
from provision.controller.stacks.follower import Followed
from provision.controller.stacks.status import StackStatus
from provision.controller.stacks.writer import FINALIZER
from provision.rollout.errors import ClusterError
from tests.provision.controller.fleet import PAYLOAD
from tests.provision.rollout.model.beside.objects import POOL
from tests.provision.rollout.model.process import declared_stack
from tests.provision.stacks.samples import stack as make_stack

if TYPE_CHECKING:
    from provision.controller.decision.choice import Order
    from provision.controller.stacks.model import Stack
    from provision.rollout.simulate.world import VirtualTime
    from tests.provision.rollout.model.policies import Declared

NAME: Final = "pool"


@dataclass
class Shelf:
    """The only stack, if there is one; who deletes it does not wait. It is read as the controller's book of them."""

    time: VirtualTime
    followed: Followed | None = None
    declared: Declared | None = None
    changed_s: float = 0.0
    made: int = 0
    fingerprint: str = ""

    @property
    def stack(self) -> Stack | None:
        """The stack."""
        return None if self.followed is None else self.followed.stack

    @property
    def identity(self) -> tuple[str, int, bool]:
        """What differs when it is another declaration."""
        stack = self.stack
        return ("", 0, False) if stack is None else (stack.uid, stack.generation, stack.is_going)

    @property
    def target(self) -> str:
        """The driver that is declared now, empty where none is: also of a stack that is going."""
        stack = self.stack
        return "" if stack is None or stack.is_going or self.declared is None else self.declared.target

    def all(self) -> dict[str, Followed]:
        """Return every stack by its name."""
        return {} if self.followed is None else {NAME: self.followed}

    def declare(self, declared: Declared) -> None:
        """Make the stack, or change it; what is going cannot be made again before it is gone."""
        stack = self.stack
        if stack is not None and (stack.is_going or declared == self.declared):
            return
        self.made += stack is None
        spec = declared_stack(declared)
        generation = 1 if stack is None else stack.generation + 1
        new = make_stack(
            NAME, selector={"matchLabels": POOL}, uid=f"stack{self.made}", generation=generation, spec=spec
        )
        finalizers = () if self.followed is None else self.followed.finalizers
        status = StackStatus() if self.followed is None else self.followed.status
        self.declared, self.changed_s, self.fingerprint = declared, self.time.now_s, of_stack(spec, PAYLOAD)
        self.followed = Followed(new, status, self.made * 1000 + generation, finalizers)

    def delete(self) -> None:
        """Delete the stack: it goes when nothing keeps it."""
        if self.followed is None or self.stack is None or self.stack.is_going:
            return
        going = replace(self.stack, is_going=True, generation=self.stack.generation + 1)  # as an API server counts
        self.followed = replace(self.followed, stack=going, deleted=f"{self.time():%Y-%m-%dT%H:%M:%SZ}")
        self.changed_s = self.time.now_s
        self._go()

    def keep(self, order: Order) -> None:
        """Put the finalizer on the stack of an order. Raises ClusterError where it has gone."""
        stack = self.stack
        is_same = self.followed is not None and stack is not None and stack.uid == order.stack.uid
        if self.followed is not None and is_same and FINALIZER in self.followed.finalizers:
            return
        if self.followed is None or stack is None or not is_same or stack.is_going:
            raise ClusterError(f"GpuStack {order.stack.name} was deleted meanwhile: nothing begins for it")
        self.followed = replace(self.followed, finalizers=(FINALIZER,))

    def settle(self, followed: Followed, order: Order | None, *, is_idle: bool) -> bool:
        """Put the finalizer on, or take it off, by the rules of the controller; return whether nodes may be changed."""
        stack, has_it = followed.stack, FINALIZER in followed.finalizers
        wanted = is_needed(stack, order, is_idle=is_idle)
        if wanted == has_it or (not wanted and not is_idle) or (wanted and stack.is_going) or self.followed is None:
            return True
        if self.followed.stack.uid == stack.uid:
            self.followed = replace(self.followed, finalizers=(FINALIZER,) if wanted else ())
            self._go()
        return True

    def release(self) -> None:
        """Take the finalizer off, as a person does whose stack will not go."""
        if self.followed is not None:
            self.followed = replace(self.followed, finalizers=())
            self._go()

    def _go(self) -> None:
        if self.followed is not None and self.followed.stack.is_going and not self.followed.finalizers:
            self.followed = self.declared = None
            self.fingerprint = ""
