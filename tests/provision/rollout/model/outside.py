"""A small simulated fleet, and what people, hardware and networks do to it while engines are at work."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from provision.rollout import requests
from provision.rollout.interface.pause import Pause
from provision.rollout.model import Phase
from provision.rollout.requests import Found
from provision.rollout.simulate.cluster import SimulatedCluster, SimulatedLease
from provision.rollout.simulate.machine import Machine, Pod
from provision.rollout.simulate.world import Budget, PlannedStep, VirtualTime, World
from tests.provision.rollout.model.policies import LABELS, NAMES, NEW, NOON, OLD, POLICIES, Declared

if TYPE_CHECKING:
    from provision.rollout.requests import Decide, RecordChange

STEPS = (Phase.RELEASE, Phase.SWAP, Phase.VERIFY, Phase.RESUME, Phase.ROLLBACK)
STEP_S = {Phase.RELEASE: 2.0, Phase.SWAP: 24.0, Phase.VERIFY: 7.0, Phase.RESUME: 2.0, Phase.ROLLBACK: 18.0}


_PLANNED: Final = {phase: PlannedStep(seconds) for phase, seconds in STEP_S.items()}


class Steady:
    """Every step takes as long as the last one, and fails only where its machine is broken."""

    def step(self, node: str, phase: Phase, attempt: int, *, is_back: bool) -> PlannedStep:
        del node, attempt, is_back
        return _PLANNED[phase]


def pods_of(name: str, number: int) -> list[Pod]:
    """Return an ordinary pod, one with a budget, and one of a DaemonSet."""
    ordinary, budgeted, daemon = (f"{name}-{kind}{number}" for kind in ("a", "b", "d"))
    return [
        Pod(namespace="shop", name=ordinary, uid=ordinary, grace_s=10.0, controller="ReplicaSet/web"),
        Pod(namespace="shop", name=budgeted, uid=budgeted, grace_s=2.0, budget="web", controller="ReplicaSet/web"),
        Pod(namespace="shop", name=daemon, uid=daemon, is_daemon=True, controller="DaemonSet/exporter"),
    ]


@dataclass
class Outside:
    """The world, what is declared, and whatever happens to both without an engine."""

    names: tuple[str, ...] = NAMES
    declared: Declared = field(default_factory=lambda: Declared(NEW, POLICIES[0]))
    placed: int = 0
    has_alert: bool = False  # which closes a gate
    abandoned: set[str] = field(default_factory=set)  # taken over by people, until an upgrade begins on them again

    def __post_init__(self) -> None:
        self.world = self.make_world({"web": Budget("web", allowed=1, restart_s=5.0)})
        self.tenancy = SimulatedLease()
        for name in self.names:
            self.world.place(name, pods_of(name, 0))

    def make_world(self, budgets: dict[str, Budget]) -> World:
        """Return the world, with machines that run the old driver."""
        machines = {name: Machine(name=name, driver=OLD, labels=LABELS[name]) for name in self.names}
        return World(VirtualTime(NOON), machines, Steady(), budgets)

    def open_cluster(self) -> SimulatedCluster:
        """Return how one more process sees the fleet."""
        return SimulatedCluster(self.world, self.tenancy)

    def lives(self, cluster: SimulatedCluster) -> None:
        """Let a process do what it does beside its engine, as time passes."""
        cluster.renew()

    def declare(self, target: str, policy: int) -> None:
        self.declared = Declared(target, POLICIES[policy])

    # People

    def cordon(self, name: str) -> None:
        """Cordon a node as a person does; one that is cordoned already is left as it is, as kubectl does.

        A cordon while the node is upgraded cannot be told from the upgrade's own, and ends with it; nor can it from the
        one that was there before, and then it stays.
        """
        machine = self.world.machines[name]
        record = machine.record
        if not machine.is_cordoned and not machine.is_deleted:
            is_ours = record is not None and not record.phase.is_in_service and not record.was_cordoned
            self.world.cordon(name, "" if is_ours else "a person")

    def uncordon(self, name: str) -> None:
        """Uncordon a node as a person does, after which pods come."""
        machine = self.world.machines[name]
        if machine.is_cordoned and not machine.is_deleted:
            self.world.uncordon(name)
            self.schedule(name)

    def pause(self) -> None:
        """Pause all rollouts."""
        if not self.world.is_away:
            self.world.pause = Pause(by="a person")

    def resume(self) -> None:
        """Let them go on."""
        if not self.world.is_away:
            self.world.pause = None

    def skip(self, name: str) -> None:
        self._ask(name, requests.skip)

    def unskip(self, name: str) -> None:
        self._ask(name, requests.unskip)

    def retry(self, name: str) -> None:
        self._ask(name, lambda found: requests.retry(found, self.tenancy.holder))

    def abandon(self, name: str) -> None:
        """Take a node out of its upgrade; its cordon is then the person's."""
        machine = self.world.machines[name]
        if not self._ask(name, requests.abandon):
            return
        self.abandoned.add(name)
        if machine.is_cordoned:
            machine.cordoned_by = machine.cordoned_by or "whoever abandoned it"

    def put_back(self, name: str) -> None:
        """Have an abandoned node offer its GPUs and take pods again, as `abandon --uncordon` does in the end."""
        machine = self.world.machines[name]
        if self._ask(name, requests.uncordon):
            machine.is_released, machine.cordoned_by = False, ""
            self.schedule(name)

    def _ask(self, name: str, decide: Decide) -> bool:
        """Do what a verb does, on exactly the version that it has read; return whether it changed something."""
        machine = self.world.machines[name]
        if self.world.is_away or machine.is_deleted:
            return False
        change = decide(Found(view=machine.seen())).change  # type: ignore[arg-type]  # it is there
        if change is None:
            return False
        self.patch(machine, change)
        if change.skipped is not None:
            machine.is_skipped = change.skipped
        self.world.changed(name)
        return True

    def patch(self, machine: Machine, change: RecordChange) -> None:
        """Write what was decided about a node on it."""
        if change.writes_record:
            machine.record = change.record
        if change.cordoned is not None:
            machine.is_cordoned = change.cordoned

    def hold_back(self, name: str) -> None:
        """Have another tool begin or end its work at a node."""
        machine = self.world.machines[name]
        machine.held_by = "" if machine.held_by else "kured reboots it: it ends by itself"
        self.world.changed(name)

    def alert(self) -> None:
        """Have an alert close a gate, or be over."""
        self.has_alert = not self.has_alert

    def put_clock(self, seconds: float) -> None:
        self.world.time.jump += timedelta(seconds=seconds)

    # Pods

    def schedule(self, name: str) -> None:
        """Have pods come to a node that takes some."""
        machine = self.world.machines[name]
        if not (machine.is_cordoned or machine.is_deleted or machine.is_released or not machine.is_ready):
            self.placed += 1
            self.world.place(name, pods_of(name, self.placed)[:2])

    def begin_job(self, name: str) -> None:
        """Have a job begin on a node that takes some: it is waited for where that is declared."""
        machine = self.world.machines[name]
        if not (machine.is_cordoned or machine.is_deleted or machine.is_released or not machine.is_ready):
            self.placed += 1
            uid = f"{name}-j{self.placed}"
            self.world.place(name, [Pod(namespace="jobs", name=uid, uid=uid, grace_s=10.0, is_job=True)])

    def end_jobs(self, name: str) -> None:
        """Have the jobs of a node end by themselves."""
        machine = self.world.machines[name]
        for pod in [pod for pod in machine.pods.values() if pod.is_job]:
            del machine.pods[pod.uid]
        self.world.changed(name)

    def stick(self, name: str) -> None:
        """Have the pods of a node never end."""
        for pod in self.world.machines[name].pods.values():
            pod.is_stuck = pod.is_stuck or not pod.is_terminating

    def hold_gpu(self, name: str, times: int) -> None:
        self.world.machines[name].holders = times

    def refuse_evictions(self, seconds: float) -> None:
        self.world.refused_until_s = self.world.time.now_s + seconds

    # Hardware and networks

    def reboot(self, name: str, seconds: float) -> None:
        if self.world.machines[name].is_up:
            self.world.take_down(name, seconds)

    def delete(self, name: str) -> None:
        if not self.world.machines[name].is_deleted:
            self.world.delete(name)

    def join(self, name: str) -> None:
        if self.world.machines[name].is_deleted:
            self.world.join(name)

    def register_again(self, name: str) -> None:
        """Have a kubelet register its node as a new one, at once."""
        self.delete(name)
        self.join(name)

    def lose_connections(self, name: str) -> None:
        self.world.lose_connections(name)

    def lose_api(self, seconds: float) -> None:
        self.world.away_until_s = self.world.time.now_s + seconds

    def break_step(self, name: str, phase: Phase) -> None:
        self.world.machines[name].broken[phase] = f"{phase} is broken"

    def mend(self, name: str) -> None:
        self.world.machines[name].broken.clear()
        self.world.fall_ill(name, "")

    def fall_ill(self, name: str) -> None:
        self.world.fall_ill(name, "GPU 0 has fallen off the bus")

    def end_step(self, name: str) -> None:
        """Have what runs a step on a node ended by others: it says that it was canceled, and what it began goes on."""
        self.world.end_steps(name)

    def end_faults(self) -> None:
        """End every fault; cordons of people stay, and jobs go on. Pods that have to leave find room elsewhere."""
        world = self.world
        world.budgets["web"].allowed = len(self.names)
        world.away_until_s = world.refused_until_s = 0.0
        world.pause, self.has_alert = None, False
        for name, machine in world.machines.items():
            world.bring_up(name)
            self.mend(name)
            self.join(name)
            machine.holders, machine.is_skipped, machine.held_by = 0, False, ""
            world.unstick(name)
