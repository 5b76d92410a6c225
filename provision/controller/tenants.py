"""Keeps quotas, priorities and queues as the stacks of a cluster declare them, on a thread of its own.

They are looked at when a stack changes, and then from time to time: whoever deletes a quota is answered within minutes,
without a watch on objects of which a cluster has thousands that do not matter here.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from provision.cluster.kubernetes.tenancy.keeper import TenancyKeeper
from provision.controller.stacks.derive import TenancyStands
from provision.declaration.spec.rules.tenancy import has_objects, without_names
from provision.rollout.errors import ClusterError
from provision.rollout.interface.tenancy import TenancyOrder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from provision.cluster.kubernetes.api.client import Api
    from provision.controller.stacks.model import Stack

AGAIN_S: Final = 300.0  # when all is as declared
SOON_S: Final = 60.0  # when something stood in the way
_Edition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class _Looked:
    """What became of an edition of a stack, and when it is looked at again."""

    edition: _Edition
    again_s: float
    problems: tuple[str, ...]


class TenancyDesk:
    """Carries out what stacks declare for tenants, from construction to `close`; ``acting`` is fenced by the lease."""

    def __init__(
        self, acting: Api, *, wake: Callable[[], None], say: Callable[[str], None], clock: Callable[[], float]
    ) -> None:
        self._keeper = TenancyKeeper(acting, acting)
        self._wake, self._say, self._clock = wake, say, clock
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tenancy")
        self._lock = threading.Lock()
        self._looked: dict[str, _Looked] = {}
        self._busy: set[str] = set()

    def offer(self, stack: Stack) -> bool:
        """Look at a stack soon, where it has changed or its time has come; return whether that is so."""
        with self._lock:
            looked = self._looked.get(stack.name)
            is_same = looked is not None and looked.edition == _edition(stack)
            is_declared = has_objects(stack.spec.tenancy)
            if stack.name in self._busy or (is_same and not (is_declared and self._is_due(looked))):
                return False
            self._busy.add(stack.name)
        self._pool.submit(self._look, stack)
        return True

    def _is_due(self, looked: _Looked | None) -> bool:
        return looked is None or self._clock() >= looked.again_s

    def stands(self, stack: Stack) -> TenancyStands | None:
        """Return how it stands with what a stack declares for tenants, None where that is nothing."""
        with self._lock:
            looked = self._looked.get(stack.name)
        is_declared = has_objects(stack.spec.tenancy)
        if looked is None or looked.edition != _edition(stack):
            return TenancyStands(is_known=False) if is_declared else None
        return TenancyStands(problems=looked.problems) if is_declared or looked.problems else None

    def forget_others(self, names: Collection[str]) -> None:
        """Forget stacks that are there no more: what they declared stays as it is."""
        with self._lock:
            for name in self._looked.keys() - set(names):
                del self._looked[name]

    def close(self) -> None:
        """Return when nothing more is done."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _look(self, stack: Stack) -> None:
        try:
            problems = self._carried_out(stack)
            again_s = self._clock() + (SOON_S if problems else AGAIN_S)
            with self._lock:
                former = self._looked.get(stack.name)
                self._looked[stack.name] = _Looked(_edition(stack), again_s, problems)
        finally:
            with self._lock:
                self._busy.discard(stack.name)
        if problems and (former is None or former.problems != problems):
            self._say(f"{stack.name}: {'; '.join(problems)}")
        self._wake()

    def _carried_out(self, stack: Stack) -> tuple[str, ...]:
        """Bring the cluster to what a stack declares; return what stood in the way."""
        order = TenancyOrder(stack.name, without_names(stack.spec.tenancy))
        try:
            told = self._keeper.compare(order)  # nothing is begun without the permissions for all of it
            if told.changes:
                told = self._keeper.bring(order)
        except ClusterError as error:
            return (f"tenancy: {error.message}{f' ({error.hint})' if error.hint else ''}",)
        for change in told.changes:
            self._say(f"{stack.name}: {change}")
        return told.problems


def _edition(stack: Stack) -> _Edition:
    return (stack.uid, stack.generation)
