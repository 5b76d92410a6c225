"""The small fleet with a controller beside the terminals, and how it has to end."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from provision.controller.stacks.derive import NodeIs
from provision.declaration.spec.model import Rollout
from provision.rollout import requests
from provision.rollout.errors import HeldError, UnreachableError
from provision.rollout.simulate.cluster import SimulatedLease
from provision.rollout.simulate.world import VirtualTime
from tests.provision.rollout.model.beside.claims import Witness
from tests.provision.rollout.model.beside.controller import VirtualController
from tests.provision.rollout.model.beside.objects import NodeCluster, NodeMachine, NodeWorld, write_record
from tests.provision.rollout.model.beside.stacks import Shelf
from tests.provision.rollout.model.fleet import Fleet
from tests.provision.rollout.model.invariants import hold
from tests.provision.rollout.model.outside import Steady
from tests.provision.rollout.model.policies import LABELS, NEW, NOON, OLD, POLICIES, Declared
from tests.provision.rollout.model.process import KilledError

if TYPE_CHECKING:
    from collections.abc import Callable

    from provision.rollout.interface.standing import Standing
    from provision.rollout.model import Phase
    from provision.rollout.requests import RecordChange
    from provision.rollout.simulate.cluster import SimulatedCluster
    from provision.rollout.simulate.machine import Machine
    from provision.rollout.simulate.world import Budget, World

CONTROLLER: Final = "controller"
LEASE_S: Final = 10.0  # between two tries to get the lease
LAST_TURNS: Final = 400  # in which a controller must have brought so few nodes to their end


@dataclass
class Beside(Fleet):
    """What happens to a fleet, and who rolls out on it; ``left_s`` is when a process was gone last."""

    controller: VirtualController | None = None
    is_installed: bool = False
    leaders: int = 0
    published: Standing | None = None
    left_s: float = -1e9
    lags_until_s: float = 0.0
    ends_thoroughly: bool = False
    leadership: SimulatedLease = field(default_factory=SimulatedLease)
    shelf: Shelf = field(init=False)
    witness: Witness = field(init=False)
    nodes: NodeWorld = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.shelf, self.witness = Shelf(self.world.time), Witness(self)
        self.nodes.watch = self.witness.watch

    def make_world(self, budgets: dict[str, Budget]) -> World:
        """Return a world of Nodes."""
        machines: dict[str, Machine] = {
            name: NodeMachine(name=name, driver=OLD, reported=OLD, labels=LABELS[name]) for name in self.names
        }
        self.nodes = NodeWorld(VirtualTime(NOON), machines, Steady(), budgets)
        return self.nodes

    def open_cluster(self) -> SimulatedCluster:
        """Return how one more process sees the fleet."""
        return NodeCluster(self.world, self.tenancy)

    def lives(self, cluster: SimulatedCluster) -> None:
        """Let a process do what it does beside its engine, and the controller look."""
        cluster.renew()
        self.look()

    def look(self) -> None:
        """Let the controller look, as it does while others are at work; it may be killed in that."""
        if self.controller is not None:
            self.controller.look()
            if self.controller.is_killed and not self.controller.is_turning:
                self.kill(CONTROLLER)

    def patch(self, machine: Machine, change: RecordChange) -> None:
        """Write what was decided about a node on it."""
        assert isinstance(machine, NodeMachine)
        if change.writes_record:
            write_record(machine, change.record, cordoned=change.cordoned)
        else:
            super().patch(machine, change)

    def pass_time(self, seconds: float) -> None:
        """Let time pass in which processes wait."""
        time = self.world.time
        end_s = time.now_s + seconds
        while time.now_s < end_s:
            time.step(min(end_s, time.now_s + LEASE_S))
            self.look()

    def retry(self, name: str) -> None:
        """Have a failed node tried again: by whoever is at work, else by the controller that leads."""
        self._ask(name, lambda found: requests.retry(found, self.tenancy.holder, self.leadership.holder))

    @property
    def is_lagging(self) -> bool:
        """Whether the watch of the controller is behind."""
        return self.world.time.now_s < self.lags_until_s

    # The stack

    def declare_stack(self, target: str, policy: int) -> None:
        """Apply the stack."""
        if not self.world.is_away:
            self._declare(Declared(target, POLICIES[policy]))

    def _declare(self, declared: Declared) -> None:
        self.shelf.declare(declared)
        self.witness.hold_all()

    def turn_back(self, _name: str = "") -> None:
        """Declare the other driver, with the same policy."""
        declared = self.shelf.declared
        if declared is not None:
            self._declare(replace(declared, target=NEW if declared.target == OLD else OLD))

    def delete_stack(self) -> None:
        if not self.world.is_away:
            self.shelf.delete()

    def release_stack(self) -> None:
        """Have a person take the finalizer off a stack that nobody lets go."""
        if self.controller is None:
            self.shelf.release()

    def change_mind(self, name: str, phase: Phase, target: str, policy: int) -> None:
        """Declare something when a node has come to a phase, if it does soon."""
        for _ in range(30):
            record = self.world.machines[name].record
            if record is not None and record.phase is phase:
                self.declare_stack(target, policy)
                return
            self.turns(CONTROLLER, 1)

    # The controller

    def install(self) -> None:
        """Install the controller: it begins with its next turn."""
        self.is_installed = True

    def uninstall(self) -> None:
        """Take the controller away, with its permissions: it writes nothing more."""
        self.is_installed = False
        self.kill(CONTROLLER)

    def stop(self) -> None:
        """Stop the controller as its Deployment does, which starts it again."""
        controller, self.controller = self.controller, None
        if controller is not None:
            self.controller = controller  # it renews its lease while it ends
            try:
                controller.end()
            except KilledError:
                controller.leave()
            self._gone()

    def lag(self, seconds: float) -> None:
        """Have the watch of the controller be behind for a while."""
        self.lags_until_s = self.world.time.now_s + seconds

    def find_drift(self, name: str) -> None:
        """Have the daemon of a node find that something of it is not as declared."""
        machine = self.nodes.machine(name)
        if not machine.is_deleted:
            machine.is_drifted = True
            self.world.changed(name)

    def kill(self, holder: str) -> None:
        """Kill a process between two turns."""
        if holder != CONTROLLER:
            if holder in self.processes:
                self.left_s = self.world.time.now_s
            super().kill(holder)
        elif self.controller is not None:
            self.controller.leave()
            self._gone()

    def _gone(self) -> None:
        self.witness.standing()
        self.controller, self.left_s = None, self.world.time.now_s

    def apply(self, holder: str) -> None:
        """Begin an apply on somebody's machine, or start the controller where it is installed."""
        if holder != CONTROLLER:
            super().apply(holder)
        elif self.is_installed and self.controller is None:
            lease = NodeCluster(self.world, self.leadership)
            name = f"{CONTROLLER}-{self.leaders + 1}"
            try:
                lease.take(name)
            except (HeldError, UnreachableError):
                lease.close()
                return
            self.leaders += 1
            self.controller = VirtualController(self, lease, name)

    def turns(self, holder: str, number: int) -> None:
        """Let a process go on."""
        if holder != CONTROLLER:
            super().turns(holder, number)
            return
        for _ in range(number):
            self.apply(CONTROLLER)
            if self.controller is None:
                self.pass_time(LEASE_S)
                continue
            try:
                if self.controller.turn():
                    self.kill(CONTROLLER)
            except KilledError:
                self.kill(CONTROLLER)

    def _disturb_at(self, holder: str, effect: int, disturb: Callable[[], None]) -> None:
        if holder != CONTROLLER:
            super()._disturb_at(holder, effect, disturb)
        elif self.controller is not None:
            self.controller.countdown, self.controller.at_zero = effect, disturb
            self.turns(CONTROLLER, 12)

    def has_at_work(self, name: str) -> bool:
        """Tell whether a process that lives is at a node, or comes to it by itself."""
        for process in self.processes.values():
            if (node := process.engine._nodes.get(name)) is not None and (node.is_in_flight or node.is_busy):
                return True
        memory = None if self.controller is None else self.controller.memory
        if self.controller is None or memory is None or memory.order is None:
            return self.controller is not None and self.shelf.stack is not None
        target = memory.order.targets.get(name)
        return name in memory.lane.busy or (target is not None and not target.is_barred)

    # The end

    def finish(self) -> None:
        """Hold that a healthy fleet is brought to an end by a controller, if there was a stack."""
        if self.shelf.made == 0:
            super().finish()
            return
        for holder in tuple(self.processes):
            self.kill(holder)
        if self.shelf.stack is not None and self.shelf.stack.is_going and not self.is_installed:
            self.shelf.release()
        self.end_faults()
        self.freeze(600.0)
        self.is_installed = True
        target = self.declared.target if self.shelf.declared is None else self.shelf.declared.target
        self.hold_goes()
        self.end_with(target, may_ask=True)
        for each in (OLD if target != OLD else NEW, target) if self.ends_thoroughly else ():
            self.end_with(each)

    def hold_goes(self) -> None:
        """Hold that a stack which was deleted goes in the end."""
        for _ in range(LAST_TURNS):
            if self.shelf.stack is None or not self.shelf.stack.is_going:
                return
            self.turns(CONTROLLER, 1)
        hold(condition=False, what="a stack that was deleted never goes")

    def end_thoroughly(self) -> None:
        """Have another driver declared at the end, and then the first one again: no failure of before is in the way."""
        self.ends_thoroughly = True

    def end_with(self, target: str, *, may_ask: bool = False) -> None:
        """Hold that everything becomes as declared; what a rollout has left failed takes a person to be tried again."""
        everywhere = Rollout(max_parallel=len(self.names), max_unavailable=len(self.names))
        self.declared = Declared(target, everywhere)
        self._declare(self.declared)
        stuck = self.settle()
        if may_ask:
            for name in stuck:
                self.retry(name)
            stuck = self.settle() if stuck else stuck
        told = {} if self.controller is None else self.controller.told
        why = {name: f"{each.how.value} ({each.reason})" for name, each in told.items()}
        hold(not stuck, f"with {target} declared, {why} is the end")
        self.hold_ended()
        for name in self.names:
            self.witness.hold_well(name)

    def settle(self) -> list[str]:
        """Let the controller go on until it is at rest; return the nodes that are not as declared then."""
        left = list(self.names)
        for _ in range(LAST_TURNS):
            self.turns(CONTROLLER, 1)
            controller = self.controller
            memory = None if controller is None else controller.memory
            if controller is None or memory is None or memory.order is None or self.is_lagging:
                continue
            left = [name for name in self.names if not self._is_well(name)]
            is_quiet = memory.lane.is_idle and not controller.marker.pending and not controller.dirty
            barred = {name for name, each in memory.order.targets.items() if each.is_barred}
            if is_quiet and (not left or barred.issuperset(left)):
                break
        return left

    def _is_well(self, name: str) -> bool:
        assert self.controller is not None
        how = self.controller.told.get(name)
        return how is not None and how.how is NodeIs.AS_DECLARED
