"""One controller beside the terminals: the loop, the lane and all decisions are the product's, in virtual time.

Its threads are gone: rounds go on turn by turn, marks are written before the next look, and it looks as time passes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from provision.controller.decision.standings import stands
from provision.controller.loop import Controller
from provision.controller.marker import Marker
from provision.controller.rounds.apply import Dependencies
from provision.controller.rounds.lane import LaneTenure
from provision.controller.rounds.reports import Reports, StackMemory
from provision.rollout.errors import HeldError, LeaseLostError, UnreachableError
from tests.provision.controller.fleet import PAYLOAD
from tests.provision.rollout.model.beside.objects import NodeCluster, NodesApi, node_of
from tests.provision.rollout.model.beside.rounds import Round, RoundCluster, VirtualLane
from tests.provision.rollout.model.beside.stacks import NAME
from tests.provision.rollout.model.invariants import hold
from tests.provision.rollout.model.process import KilledError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from provision.cluster.kubernetes.cluster import Held
    from provision.controller.decision.choice import Order
    from provision.controller.marker import Mark
    from provision.controller.stacks.derive import Stands
    from provision.rollout.interface.pause import Pause
    from provision.rollout.interface.standing import Standing
    from tests.provision.rollout.model.beside.fleet import Beside

LOOK_S: Final = 10.0  # between two looks without news
REST_S: Final = 30.0
STOP_TURNS: Final = 60


class VirtualWork:
    """The hold of a controller on the lease of whoever changes nodes, beside that by which it leads."""

    def __init__(self, fleet: Beside, lead: NodeCluster, lease: NodeCluster, holder: str) -> None:
        self.fleet, self.world, self.lead, self.lease, self.holder = fleet, fleet.nodes, lead, lease, holder
        self.is_held, self.in_the_way = False, ""

    @property
    def is_lost(self) -> bool:
        """Whether it was taken, and somebody else may have it."""
        try:
            self.lease.check_lease()
        except LeaseLostError:
            return self.is_held
        return False

    def take(self) -> bool:
        """Tell whether rounds may begin."""
        if self.is_held:
            return not self.is_lost
        try:
            self.lease.take(self.holder)
        except (HeldError, UnreachableError) as error:
            self.in_the_way = error.message
            return False
        self.is_held, self.in_the_way = True, ""
        return True

    def give_back(self) -> None:
        """Let others change nodes."""
        if self.is_held:
            self.fleet.witness.standing()  # what is written last is how it stands then
            self.lease.give_back()
            self.is_held = False

    def look(self) -> None:
        """Who has paused rollouts is known at once."""

    @property
    def pause(self) -> Pause | None:
        """Who wants no further node to begin."""
        return self.world.pause

    def check(self) -> None:
        """Raise LeaseLostError where nothing more may be changed."""
        self.lead.check_lease()
        if not self.is_held:
            raise LeaseLostError("the lease was given back: nothing more is changed")
        self.lease.check_lease()

    def publish(self, standing: Standing) -> None:
        """It is read from the board."""


class VirtualMarker(Marker):
    """Writes marks when it is told to; each is an effect, before which the process may be killed."""

    def __init__(self, owner: VirtualController, api: NodesApi) -> None:
        nodes: Any = owner._nodes
        super().__init__(api, nodes, lambda _text: None, owner._clock)  # type: ignore[arg-type]  # as much as it asks
        self.owner = owner
        self.pending: list[Mark] = []

    def mark(self, mark: Mark) -> None:
        """Write a mark soon."""
        self._handed_in.append(mark.node)
        self.pending.append(mark)

    def flush(self) -> None:
        """Write what is to be written."""
        while self.pending:
            self._write_or_complain(self.pending.pop(0))

    def write(self, mark: Mark) -> None:
        """Write a mark now."""
        self.owner.count()
        super().write(mark)


class Teller:
    """Shows what is told of a stack to whoever holds it against the machines."""

    def __init__(self, owner: VirtualController) -> None:
        self.owner, self.desk = owner, self

    def look(
        self, _followed: object, memory: StackMemory, order: Order | None, _members: object, unmarked: Mapping[str, str]
    ) -> None:
        """Find out how the nodes of the stack stand."""
        owner = self.owner
        owner.told = {}
        if order is not None:
            standing = owner._board.get(NAME)
            owner.told = stands(order, memory.lane.busy, standing, memory.attempts, unmarked)
            if not owner.dirty:
                is_quiet = memory.lane.is_idle and not order.due and not owner.marker.pending
                left = [name for name, node in order.members.items() if is_quiet and node.is_in_flight]
                unexplained = [each for each in left if not memory.attempts.reason(each, order.targets[each].key)]
                hold(not unexplained, f"{unexplained} are in flight, and the controller has nothing to do")
                owner.fleet.witness.told(order, owner.told, is_quiet=is_quiet)

    def forget_others(self, _names: object) -> None:
        """There are no tenants."""


class VirtualController(Controller):
    """A controller that has the lease, until it loses it, is stopped, or is killed."""

    def __init__(self, fleet: Beside, lead: NodeCluster, holder: str) -> None:
        self.fleet, self.lead, self.holder = fleet, lead, holder
        self.lease = NodeCluster(fleet.world, fleet.tenancy)
        api: Any = NodesApi(fleet.nodes)
        super().__init__(api, self._dependencies, holder, say=lambda _text: None, clock=lambda: fleet.world.time.now_s)
        shelf: Any = fleet.shelf
        self._stacks, self._keeper = shelf, shelf
        work: Any = VirtualWork(fleet, lead, self.lease, holder)
        self._work = work
        self.marker = VirtualMarker(self, NodesApi(fleet.nodes, lead.check_lease))
        self._marker = self.marker
        self.reports = Reports(self._nodes, self.marker, lambda _text: None, self._clock)
        self.teller: Any = Teller(self)
        self.told: Mapping[str, Stands] = {}
        self.dirty = set(fleet.world.machines)
        self.is_lost = self.is_killed = self.is_looking = self.is_turning = False
        self.looked_s, self.looked_at = -LOOK_S, ("", 0, False)
        self.countdown: int | None = None
        self.at_zero: Callable[[], None] = lambda: None
        fleet.world.watchers.append(self)

    def changed(self, node: str) -> None:
        """Have a Node read again, by its watch."""
        self.dirty.add(node)

    def count(self) -> None:
        """Count an effect that is about to happen."""
        if self.countdown is not None:
            self.countdown -= 1
            if self.countdown < 0:
                self.countdown = None
                self.at_zero()

    def _dependencies(self, held: Held) -> Dependencies:
        fleet, tenure = self.fleet, held
        assert isinstance(tenure, LaneTenure)
        open_cluster: Any = lambda _stacks: RoundCluster(  # noqa: E731 - typed as what the product opens
            fleet.world, fleet.tenancy, tenure=tenure, lease_of=self.lease
        )
        runner: Any = None
        return Dependencies(
            runner=runner,
            collection=Path(),
            payload=PAYLOAD,
            open_cluster=open_cluster,
            holder=self.holder,
            parallel=4,
            keep=fleet.shelf.keep,
        )

    def _remember(self, name: str) -> StackMemory:
        dependencies = replace(
            self._make_dependencies(LaneTenure(self._work, self._board, name)), withdraw=self.marker.withdraw
        )
        lane = VirtualLane(name, dependencies, self._board, self._tell, self._say, self._clock, owner=self)
        self._memory[name] = StackMemory(lane)
        return self._memory[name]

    @property
    def rounds(self) -> list[Round]:
        """The rounds that run."""
        lanes: list[Any] = [memory.lane for memory in self._memory.values()]
        return [each for lane in lanes for each in lane.rounds]

    @property
    def memory(self) -> StackMemory | None:
        """What it knows of the stack."""
        return self._memory.get(NAME)

    def look(self) -> None:
        """Turn its loop once, where something is new or enough time has passed."""
        if self.is_looking or self.is_lost or self.is_killed:
            return
        world, shelf = self.fleet.nodes, self.fleet.shelf
        self.lead.renew()
        self.lease.renew()
        if world.is_away or not (self._has_news() or world.time.now_s - self.looked_s >= LOOK_S):
            return
        self.is_looking, self.looked_s, self.looked_at = True, world.time.now_s, shelf.identity
        try:
            self.lead.check_lease()
            self.marker.flush()
            self._read()
            self._turn(self.reports, self.teller)
        except LeaseLostError:
            self.is_lost = True
        except KilledError:
            self.is_killed = True
        finally:
            self.is_looking = False

    def _has_news(self) -> bool:
        if self.marker.pending or not self._inbox.empty() or self.looked_at != self.fleet.shelf.identity:
            return True
        return bool(self.dirty) and not self.fleet.is_lagging

    def _read(self) -> None:
        """Take what the watch has, unless it lags."""
        if self.fleet.is_lagging:
            return
        for name in sorted(self.dirty):
            machine = self.fleet.nodes.machine(name)
            self._nodes.change("DELETED" if machine.is_deleted else "MODIFIED", node_of(machine))
        self.dirty.clear()

    def turn(self) -> bool:
        """Go on; return whether it is over."""
        self.is_turning = True
        self.look()
        for each in self.rounds:
            if not self._is_over():
                each.turn()
        if not self.rounds:
            self.fleet.pass_time(self._rest_s())
        self.is_turning = False
        return self._is_over()

    def _is_over(self) -> bool:
        """Tell whether it has lost the lease, which it learns without an answer of the API server, too."""
        try:
            self.lead.check_lease()
        except LeaseLostError:
            self.is_lost = True
        return self.is_lost or self.is_killed

    def _rest_s(self) -> float:
        now = self._clock()
        tries = [each for memory in self._memory.values() if (each := memory.attempts.next_s()) is not None]
        return min([each - now for each in tries if each > now] + [REST_S])

    def end(self) -> None:
        """End as one that is told to: rounds are called off, and what they say last is known to the next one."""
        for memory in self._memory.values():
            memory.lane.stop()
        for _ in range(STOP_TURNS):
            for each in self.rounds:
                each.turn()
        self._hear(self.reports)
        self._let_go()
        self.marker.flush()
        self._work.give_back()
        self.lead.give_back()
        self.leave()

    def leave(self) -> None:
        """Let go of everything, as the kernel does for a process that is gone."""
        for each in self.rounds:
            each.leave()
        self.fleet.world.watchers.remove(self)
        self.lease.close()
        self.lead.close()
