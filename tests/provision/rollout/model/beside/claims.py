"""Holds what is said of nodes against the machines, whoever says it: status, a controller, or the next one.

It is held whenever what runs on a machine may differ, what is said of it, or what is declared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.cluster.kubernetes.pods.pod_rules import TAINT
from provision.controller.decision.attempts import Attempts
from provision.controller.decision.choice import choose
from provision.controller.decision.standings import stands
from provision.controller.nodes import see
from provision.controller.stacks.derive import NodeIs
from provision.rollout.model import Phase
from provision.rollout.simulate.cluster import DURATION_S
from provision.rollout.status import situations
from provision.rollout.status.derive import fleet_status
from provision.rollout.status.model import Seen, Tenant
from tests.provision.rollout.model.beside.objects import node_of
from tests.provision.rollout.model.invariants import hold

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provision.controller.decision.choice import Order
    from provision.controller.stacks.derive import Stands
    from provision.rollout.interface.standing import Standing
    from provision.rollout.simulate.cluster import SimulatedLease
    from provision.rollout.status.model import NodeStatus
    from tests.provision.rollout.model.beside.fleet import Beside
    from tests.provision.rollout.model.beside.objects import NodeMachine


class Witness:
    """Who looks at machines and at what is said of them."""

    def __init__(self, fleet: Beside) -> None:
        self.fleet = fleet
        self._seen: dict[str, object] = {}
        self._well: dict[str, object] = {}

    def watch(self, machine: NodeMachine) -> None:
        """Look at a machine, if anything about it differs that matters."""
        key = (
            machine.record,
            str(machine.annotations),
            machine.driver,
            machine.change,
            machine.reported,
            machine.uid,
            machine.is_drifted,
        )
        if self._seen.get(machine.name) != key:
            self._seen[machine.name] = key
            self.hold(machine)

    def hold_all(self) -> None:
        """Look at all machines: something else is declared."""
        for name in self.fleet.names:
            self.hold(self.fleet.nodes.machine(name))

    def hold(self, machine: NodeMachine) -> None:
        """Hold what anybody who looks now would say of a machine."""
        if machine.is_deleted:
            return
        fleet = self.fleet
        stack, target = fleet.shelf.stack, fleet.shelf.target
        if stack is not None and target:
            members, tries = {machine.name: see(node_of(machine))}, Attempts()
            order = choose(stack, fleet.shelf.fingerprint, members, tries, 0.0)
            if stands(order, (), None, tries)[machine.name].how is NodeIs.AS_DECLARED:
                self.hold_declared(machine, target, "is as declared")
        self.hold_status(machine, self.status(machine))

    def told(self, order: Order, told: Mapping[str, Stands], *, is_quiet: bool) -> None:
        """Hold what a controller says that has seen everything; ``is_quiet``: it has nothing to do."""
        if order.stack.is_going:
            return
        for name, each in told.items():
            if each.how is NodeIs.AS_DECLARED:
                if is_quiet:
                    self.hold_well(name)
                self.hold_declared(self.fleet.nodes.machine(name), order.stack.spec.driver.version or "", "stands well")

    def status(self, machine: NodeMachine) -> NodeStatus:
        """Return what `grapnel status` says of a node."""
        return fleet_status(self.seen(machine.name)).nodes[0]

    def seen(self, *names: str) -> Seen:
        """Return what is read of these nodes."""
        fleet, tenancy, world = self.fleet, self.fleet.tenancy, self.fleet.world
        stack = fleet.shelf.stack
        return Seen(
            place="the simulated cluster",
            time=world.time(),
            nodes={name: world.machines[name].seen() for name in names},
            tenant=self.tenant(tenancy),
            controller=self.tenant(fleet.leadership),
            standing=self.standing(),
            pause=world.pause,
            declared={} if stack is None or not fleet.shelf.target else dict.fromkeys(names, stack.spec.driver),
        )

    def tenant(self, lease: SimulatedLease) -> Tenant | None:
        """Return who has a lease."""
        is_at_work = self.fleet.world.time.now_s - lease.renewed_s <= DURATION_S
        return Tenant(holder=lease.holder, is_at_work=is_at_work) if lease.holder else None

    def standing(self) -> Standing | None:
        """Return what whoever has the lease has said last."""
        controller = self.fleet.controller
        if controller is not None and self.fleet.tenancy.owner is controller.lease:
            self.fleet.published = controller._board.combined()
        return self.fleet.published

    def hold_status(self, machine: NodeMachine, status: NodeStatus) -> None:
        """Hold what the status of a node says of its driver."""
        record = status.record
        if record is None:
            return
        if status.situation is situations.DONE:
            left_with = record.origin if record.phase is Phase.RETURNED else record.target
            self.hold_runs(machine, self.fleet.shelf.target or left_with, "is done")
        elif status.situation in {situations.RETURNED, situations.PUT_BACK}:
            self.hold_runs(machine, record.origin, "is in service as before")

    def hold_declared(self, machine: NodeMachine, driver: str, what: str) -> None:
        """Hold that a machine runs what is declared, and that we have not taken it out of service."""
        self.hold_runs(machine, driver, what)
        record = machine.record
        hold(record is None or record.phase.is_in_service, f"{machine.name} {what}, and it is out: {record}")

    @staticmethod
    def hold_runs(machine: NodeMachine, driver: str, what: str) -> None:
        """Hold that a machine runs a driver, and is on its way to no other."""
        is_leaving = machine.change is not None and machine.change.target != driver
        hold(machine.driver == driver and not is_leaving, f"{machine.name} {what} ({driver}) and runs {machine.driver}")

    def hold_cordons(self) -> None:
        """Hold that whoever looks at a node that we have cordoned or tainted is told so, by its record."""
        for name in self.fleet.names:
            machine = self.fleet.nodes.machine(name)
            if machine.is_deleted:
                continue
            record = machine.record
            is_out = record is not None and not record.phase.is_in_service
            is_told = is_out or not machine.is_cordoned or bool(machine.cordoned_by)
            hold(is_told, f"{name} is cordoned, and nothing says by whom")
            is_tainted = any(taint.key == TAINT for taint in machine.taints)
            hold(not is_tainted or is_out, f"{name} is tainted, and nothing says by whom")
            if is_out:
                self.hold_told(machine)

    def hold_told(self, machine: NodeMachine) -> None:
        """Hold that somebody is at a node of which that is said, and that else there is something to do."""
        status = self.status(machine)
        if status.situation not in situations.AT_WORK:
            hold(status.situation.todo, f"{machine.name} is {status.situation.key}, and nobody says what to do")
            return
        fleet, name = self.fleet, machine.name
        is_fresh = fleet.world.time.now_s - fleet.left_s <= DURATION_S  # whoever was at it was there a moment ago
        hold(
            is_fresh or fleet.has_at_work(name),
            f"{name} is {status.situation.key}, they say, and nobody is at it",
        )

    def hold_well(self, name: str) -> None:
        """Hold that nobody is asked for anything about a node that is as declared."""
        machine = self.fleet.nodes.machine(name)
        key = (machine.record, machine.is_ready, machine.is_cordoned, machine.is_skipped)
        if self._well.get(name) == key:
            return
        self._well[name] = key
        status = self.status(machine)
        is_its_own = status.situation in {situations.NOT_READY, situations.UNCLEAR}
        hold(is_its_own or not status.situation.needs_somebody, f"{name} is as declared, and {status.situation.key}")
