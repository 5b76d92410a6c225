"""A small simulated fleet, the processes that are at it, and everything that may happen to both."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from provision.rollout.model import Phase
from provision.rollout.pause import Pause
from provision.simulate.clock import VirtualTime
from provision.simulate.cluster import SimulatedLease
from provision.simulate.machine import Machine, Pod
from provision.simulate.world import Budget, PlannedStep, World
from provision.spec.model import Domains, Rollout, Wave, Window, Zones
from tests.provision.rollout.model.invariants import hold
from tests.provision.rollout.model.process import Declared, KilledError, Process, begin

if TYPE_CHECKING:
    from collections.abc import Callable

OLD, NEW, NEWER = "535.261.03", "550.163.01", "570.195.03"
NAMES = ("n1", "n2", "n3", "n4")
HOLDERS = ("ada", "bob")
STEPS = (Phase.RELEASE, Phase.SWAP, Phase.VERIFY, Phase.RESUME, Phase.ROLLBACK)
STEP_S = {Phase.RELEASE: 3.0, Phase.SWAP: 60.0, Phase.VERIFY: 20.0, Phase.RESUME: 5.0, Phase.ROLLBACK: 45.0}
NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
LEASE_S = 50.0
APPLIES = 2
TURNS = 400  # in which a rollout of so few nodes must have come to an end
ZONE = "topology.kubernetes.io/zone"
WINDOWS = (Window(start="12:00", end="12:10"), Window(start="12:25", end="12:35"))

POLICIES = (
    Rollout(max_parallel=1, max_unavailable=1),
    Rollout(max_parallel=2, max_unavailable=2, max_failures=1),
    Rollout(max_parallel=4, max_unavailable=3, max_failures=2, soak_minutes=1),
    Rollout(max_parallel=2, max_unavailable=2, waves=(Wave(size=1, soak_minutes=1), Wave())),
    Rollout(max_parallel=2, max_unavailable=4, max_failures=1, waves=(Wave(size=1), Wave(size="50%"), Wave())),
    Rollout(max_parallel=4, max_unavailable=4, max_failures=1, zones=Zones(node_label=ZONE, max_unavailable=1)),
    Rollout(max_parallel=4, max_unavailable=2, max_failures=2, domains=Domains(node_label=ZONE)),
    Rollout(max_parallel=2, max_unavailable=2, windows=WINDOWS, node_minutes=4, max_failures=4),
)


class Steady:
    """Every step takes as long as the last one, and fails only where its machine is broken."""

    def step(self, node: str, phase: Phase, attempt: int, *, is_back: bool) -> PlannedStep:
        del node, attempt, is_back
        return PlannedStep(STEP_S[phase])


def pods_of(name: str, number: int) -> list[Pod]:
    """Return an ordinary pod, one with a budget, and one of a DaemonSet."""
    ordinary, budgeted, daemon = (f"{name}-{kind}{number}" for kind in ("a", "b", "d"))
    return [
        Pod(namespace="shop", name=ordinary, uid=ordinary, grace_s=10.0, controller="ReplicaSet/web"),
        Pod(namespace="shop", name=budgeted, uid=budgeted, grace_s=2.0, budget="web", controller="ReplicaSet/web"),
        Pod(namespace="shop", name=daemon, uid=daemon, is_daemon=True, controller="DaemonSet/exporter"),
    ]


@dataclass
class Fleet:
    """The world, up to two processes that roll out on it, and what is declared."""

    names: tuple[str, ...] = NAMES
    declared: Declared = field(default_factory=lambda: Declared(NEW, POLICIES[0]))
    processes: dict[str, Process] = field(default_factory=dict)
    placed: int = 0

    def __post_init__(self) -> None:
        machines = {
            name: Machine(name=name, driver=OLD, labels={ZONE: f"z{index % 2}"})
            for index, name in enumerate(self.names)
        }
        budgets = {"web": Budget("web", allowed=1, restart_s=5.0)}
        self.world = World(VirtualTime(NOON), machines, Steady(), budgets)
        self.tenancy = SimulatedLease()
        for name in self.names:
            self.world.place(name, pods_of(name, 0))

    # Processes

    def apply(self, holder: str) -> None:
        """Begin an apply on somebody's machine, unless one runs there."""
        if holder in self.processes:
            return
        process = begin(self.world, self.tenancy, holder, self.declared)
        if process is not None:
            self.processes[holder] = process

    def turns(self, holder: str, number: int) -> None:
        """Let a process go on."""
        for _ in range(number):
            process = self.processes.get(holder)
            if process is None:
                return
            try:
                if process.turn():
                    del self.processes[holder]
            except KilledError:
                self.kill(holder)

    def kill(self, holder: str) -> None:
        """Kill a process between two turns."""
        process = self.processes.pop(holder, None)
        if process is not None:
            process.leave()

    def kill_at(self, holder: str, effect: int) -> None:
        """Kill a process just before one of its next effects."""

        def die() -> None:
            raise KilledError

        self.disturb_at(holder, effect, die)

    def disturb_at(self, holder: str, effect: int, disturb: Callable[[], None]) -> None:
        """Have something happen just before one of the next effects of a process: after it has observed."""
        process = self.processes.get(holder)
        if process is not None:
            process.countdown, process.at_zero = effect, disturb

    def pass_time(self, seconds: float) -> None:
        """Let time pass in which no process does anything: they are frozen, or there is none."""
        end_s = self.world.time.now_s + seconds
        while self.world.time.step(end_s):
            pass

    # People, hardware, networks

    def cordon(self, name: str) -> None:
        """Cordon a node as a person does; one that is cordoned already is left as it is, as kubectl does.

        A cordon while the node is upgraded cannot be told from the upgrade's own, and ends with it.
        """
        machine = self.world.machines[name]
        if not machine.is_cordoned and not machine.is_deleted:
            is_upgraded = machine.record is not None and machine.record.phase is not Phase.DONE
            self.world.cordon(name, "" if is_upgraded else "a person")

    def uncordon(self, name: str) -> None:
        """Uncordon a node as a person does, after which pods come."""
        machine = self.world.machines[name]
        if machine.is_cordoned and not machine.is_deleted:
            self.world.uncordon(name)
            self.schedule(name)

    def schedule(self, name: str) -> None:
        """Have pods come to a node that takes some."""
        machine = self.world.machines[name]
        if not (machine.is_cordoned or machine.is_deleted or machine.is_released or not machine.is_ready):
            self.placed += 1
            self.world.place(name, pods_of(name, self.placed)[:2])

    def reboot(self, name: str, seconds: float) -> None:
        if self.world.machines[name].is_up:
            self.world.take_down(name, seconds)

    def delete(self, name: str) -> None:
        if not self.world.machines[name].is_deleted:
            self.world.delete(name)

    def join(self, name: str) -> None:
        if self.world.machines[name].is_deleted:
            self.world.join(name)

    def lose_connections(self, name: str) -> None:
        self.world.lose_connections(name)

    def lose_api(self, seconds: float) -> None:
        self.world.away_until_s = self.world.time.now_s + seconds

    def refuse_evictions(self, seconds: float) -> None:
        self.world.refused_until_s = self.world.time.now_s + seconds

    def break_step(self, name: str, phase: Phase) -> None:
        self.world.machines[name].broken[phase] = f"{phase} is broken"

    def mend(self, name: str) -> None:
        self.world.machines[name].broken.clear()
        self.world.fall_ill(name, "")

    def fall_ill(self, name: str) -> None:
        self.world.fall_ill(name, "GPU 0 has fallen off the bus")

    def hold_gpu(self, name: str, times: int) -> None:
        self.world.machines[name].holders = times

    def stick(self, name: str) -> None:
        """Have the pods of a node never end."""
        for pod in self.world.machines[name].pods.values():
            pod.is_stuck = pod.is_stuck or not pod.is_terminating

    def skip(self, name: str) -> None:
        """Label a node to be skipped, or take that label away."""
        machine = self.world.machines[name]
        machine.is_skipped = not machine.is_skipped
        self.world.changed(name)

    def hold_back(self, name: str) -> None:
        """Have another tool begin or end its work at a node."""
        machine = self.world.machines[name]
        machine.held_by = "" if machine.held_by else "kured reboots it: it ends by itself"
        self.world.changed(name)

    def pause(self) -> None:
        """Pause all rollouts, or let them go on."""
        self.world.pause = None if self.world.pause else Pause(by="a person")

    def abandon(self, name: str) -> None:
        """Give up on a node that failed: its record is taken away, and it is put back into service."""
        machine = self.world.machines[name]
        if machine.record is not None and machine.record.phase is Phase.FAILED:
            machine.record, machine.is_released = None, False
            self.world.uncordon(name)

    def put_clock(self, seconds: float) -> None:
        self.world.time.jump += timedelta(seconds=seconds)

    def declare(self, target: str, policy: int) -> None:
        self.declared = Declared(target, POLICIES[policy])

    # The end

    def heal(self) -> None:
        """End every fault; what people have cordoned stays so."""
        world = self.world
        world.away_until_s = world.refused_until_s = 0.0
        world.pause = None
        for holder in HOLDERS:
            self.kill(holder)
        for name, machine in world.machines.items():
            world.bring_up(name)
            self.mend(name)
            self.join(name)
            machine.holders, machine.is_skipped, machine.held_by = 0, False, ""
            world.unstick(name)
        self.pass_time(600.0)

    def finish(self) -> None:
        """Hold that a healthy fleet is brought to an end on which everybody agrees."""
        self.heal()
        out = sum(machine.is_cordoned for machine in self.world.machines.values())
        rollout = self.declared.rollout
        self.declared = Declared(
            self.declared.target, Rollout(max_parallel=rollout.max_parallel, max_unavailable=out + 1)
        )
        stop = "".join(self.finish_once() for _ in range(APPLIES))  # what returned or failed is tried by the next one
        hold(not self.finish_once(), f"it stops although nothing is wrong: {stop}")
        self.hold_ended()

    def finish_once(self) -> str:
        """Apply once more; return why it stopped."""
        self.apply("ada")
        hold("ada" in self.processes, "nobody is at work, and the lease is not to be had")
        process = self.processes["ada"]
        self.turns("ada", TURNS)
        hold("ada" not in self.processes, "it does not end")
        return process.engine._stop or process.engine._decision.stop or ""

    def hold_ended(self) -> None:
        """Hold that every node has what is declared, and that no cordon of a rollout is left."""
        for machine in self.world.machines.values():
            record = machine.record
            hold(machine.driver == self.declared.target, f"{machine.name} has driver {machine.driver}")
            hold(record is None or record.phase is Phase.DONE, f"{machine.name} is not done")
            hold(machine.is_cordoned == bool(machine.cordoned_by), f"{machine.name} is cordoned: {machine.is_cordoned}")
