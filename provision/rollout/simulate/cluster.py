"""Gives an engine the simulated fleet as its cluster, with the answers and the errors of an API server."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from provision.rollout.errors import ConflictError, HeldError, LeaseLostError, UnreachableError
from provision.rollout.interface.cluster import Eviction, EvictionOutcome, NodeProblem, OneByOne

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from provision.rollout.interface.pause import Pause
    from provision.rollout.interface.standing import Standing
    from provision.rollout.model import GpuPod, NodeView, Record
    from provision.rollout.simulate.machine import Machine
    from provision.rollout.simulate.world import World

DURATION_S: Final = 45.0  # of the lease, as `provision.cluster.kubernetes.lease` has it
DEADLINE_S: Final = 35.0


def _nothing() -> None:
    """Do nothing."""


@dataclass(slots=True, eq=False)
class SimulatedLease:
    """Who holds the lease of the fleet, and when it was last renewed."""

    holder: str = ""
    owner: object = None
    renewed_s: float = 0.0


@dataclass(slots=True)
class Hooks:
    """Whom effects are shown to before they happen: it may raise instead. None, unless a test wants to know."""

    write: Callable[[str, Record | None, bool | None], None] = lambda _node, _record, _cordoned: None
    evict: Callable[[str, GpuPod], None] = lambda _node, _pod: None
    published: Callable[[Standing], None] = lambda _standing: None


@dataclass(slots=True, eq=False)
class SimulatedCluster(OneByOne):
    """One engine's view of the fleet: what it has observed, and whether it still holds the lease."""

    world: World
    tenancy: SimulatedLease = field(default_factory=SimulatedLease)
    hooks: Hooks = field(default_factory=Hooks)
    name: str = "the simulated cluster"
    renewed_s: float = 0.0
    _is_inside: bool = False
    _is_writing: bool = False
    _changed: set[str] = field(default_factory=set)
    _views: dict[str, NodeView | NodeProblem] = field(default_factory=dict)
    _places: dict[str, str] = field(default_factory=dict)
    on_change: Callable[[], None] = _nothing

    def __post_init__(self) -> None:
        self._changed.update(self.world.machines)
        self.world.watchers.append(self)

    @property
    def tenant(self) -> object:
        """Who the lease belongs to while this one is at work."""
        return self

    def close(self) -> None:
        """Watch no more."""
        self.world.watchers.remove(self)

    def changed(self, node: str) -> None:
        """Look at the node again when it is asked for."""
        self._changed.add(node)
        if not self._is_writing:
            self.on_change()

    def observe(self, nodes: Collection[str]) -> Mapping[str, NodeView | NodeProblem]:
        """Return the nodes as they are; the same object for one that is as it was."""
        self._reach()
        for name in self._changed:
            self._look(name)
        self._changed.clear()
        return {name: self._views[name] for name in nodes}

    @contextlib.contextmanager
    def watching(self, nodes: Collection[str], wake: Callable[[], None]) -> Iterator[None]:
        """Call ``wake`` whenever something changes, whichever node it is."""
        del nodes
        self.on_change = wake
        try:
            yield
        finally:
            self.on_change = _nothing

    def _look(self, node: str) -> None:
        view = self.world.machines[node].seen()
        self._views[node] = view
        if not isinstance(view, NodeProblem):
            for pod in view.gpu_pods:
                self._places[pod.uid] = node

    def write(self, node: str, record: Record | None, *, cordoned: bool | None = None) -> None:
        """Write as a patch with a resource version does."""
        self.hooks.write(node, record, cordoned)
        self._act()
        machine, seen = self.world.machines[node], self._views[node]
        if machine.is_deleted or isinstance(seen, NodeProblem):
            raise ConflictError(f"{node} has left {self.name}")
        if (
            machine.uid != seen.uid
            or machine.record != seen.record
            or (cordoned is not None and machine.is_cordoned != seen.is_cordoned)
        ):
            raise ConflictError(f"{node} was changed by somebody else meanwhile")
        self.apply(machine, record, cordoned=cordoned)
        self._is_writing = True  # an engine knows what it has written itself
        self.world.changed(node)
        self._is_writing = False
        self._look(node)
        self._changed.discard(node)

    def apply(self, machine: Machine, record: Record | None, *, cordoned: bool | None) -> None:
        """Have the Node of a machine be as it is written."""
        machine.record = record
        if cordoned is not None:
            machine.is_cordoned = cordoned

    def evict(self, pod: GpuPod) -> Eviction:
        """Ask for a pod to leave."""
        node = self._places[pod.uid]
        self.hooks.evict(node, pod)
        self._act()
        answer = self.world.evict(pod.uid, node)
        if answer is None:
            return Eviction(outcome=EvictionOutcome.GONE)
        if answer:
            return Eviction(outcome=EvictionOutcome.BLOCKED, reason=answer)
        return Eviction(outcome=EvictionOutcome.EVICTED)

    def has_runtime_class(self, name: str, handler: str) -> bool:
        """Return that it is there."""
        return name == handler

    def ensure_runtime_class(self, name: str, handler: str) -> bool:
        """Return that it was there."""
        return name != handler

    @contextlib.contextmanager
    def lease(self, holder: str) -> Iterator[None]:
        """Hold the lease; an engine that is killed inside leaves it to run out."""
        self.take(holder)
        try:
            yield
        except Exception:
            self.give_back()
            raise
        self.give_back()

    def take(self, holder: str) -> None:
        """Take the lease, or raise HeldError."""
        self._reach()
        now_s, held = self.world.time.now_s, self.tenancy
        if held.holder not in {"", holder} and now_s - held.renewed_s <= DURATION_S:
            raise HeldError(f"{held.holder} is at work")
        held.holder, held.owner, held.renewed_s = holder, self, now_s
        self.renewed_s, self._is_inside = now_s, True

    def give_back(self) -> None:
        """Let others go on at once."""
        if self.tenancy.owner is self:
            self.tenancy.holder, self.tenancy.owner = "", None
        self._is_inside = False

    def renew(self) -> None:
        """Renew the lease, as its thread does while the process lives and the API server answers."""
        now_s = self.world.time.now_s
        is_held = self._is_inside and self.tenancy.owner is self and now_s - self.renewed_s <= DEADLINE_S
        if is_held and not self.world.is_away:
            self.renewed_s = self.tenancy.renewed_s = now_s

    def check_lease(self) -> None:
        """Raise LeaseLostError as an engine's own clock tells it."""
        if self._is_inside:
            if self.tenancy.owner is not self:
                raise LeaseLostError(f"the lease of {self.name} is lost: {self.tenancy.holder or 'nobody'} has it")
            if self.world.time.now_s - self.renewed_s > DEADLINE_S:
                raise LeaseLostError(f"the lease of {self.name} is lost: it could not be renewed")

    def paused(self) -> Pause | None:
        """Return who wants no further node to begin."""
        return self.world.pause

    def publish(self, standing: Standing) -> None:
        """Show how the rollout stands."""
        self.hooks.published(standing)

    def _reach(self) -> None:
        if self.world.is_away:
            raise UnreachableError(f"{self.name} does not answer")

    def _act(self) -> None:
        """Make sure that something may be changed."""
        self._reach()
        self.check_lease()
