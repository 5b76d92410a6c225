"""The model as a state machine: each rule is something that may happen next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.provision.rollout.model.fleet import HOLDERS, NAMES, NEW, NEWER, OLD, POLICIES, STEPS, Fleet

if TYPE_CHECKING:
    from provision.rollout.model import Phase

holders = st.sampled_from(HOLDERS)
nodes = st.sampled_from(NAMES)
phases = st.sampled_from(STEPS)
short_s = st.sampled_from((1.0, 15.0, 40.0, 70.0))
long_s = st.sampled_from((5.0, 50.0, 130.0, 400.0))
policies = st.integers(0, len(POLICIES) - 1)
targets = st.sampled_from((NEW, NEW, NEWER, OLD))
effects = st.integers(0, 12)
STEPS_OF_A_RUN = 12


class RolloutMachine(RuleBasedStateMachine):
    """Engines at a small fleet, and everything that may happen to them."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet()

    @initialize(policy=policies)
    def declare_first(self, policy: int) -> None:
        self.fleet.declare(NEW, policy)
        self.fleet.apply("ada")

    @rule(holder=holders)
    def apply(self, holder: str) -> None:
        self.fleet.apply(holder)

    @rule(holder=holders, number=st.integers(1, 40))
    def turns(self, holder: str, number: int) -> None:
        self.fleet.turns(holder, number)

    @rule(number=st.integers(5, 60))
    def go_on(self, number: int) -> None:
        self.fleet.apply("ada")
        self.fleet.turns("ada", number)

    @rule(holder=holders)
    def kill(self, holder: str) -> None:
        self.fleet.kill(holder)

    @rule(holder=holders, effect=effects)
    def kill_at(self, holder: str, effect: int) -> None:
        self.fleet.kill_at(holder, effect)
        self.fleet.turns(holder, 12)

    @rule(holder=holders, effect=effects, node=nodes, what=st.sampled_from(("cordon", "uncordon", "delete")))
    def disturb_at(self, holder: str, effect: int, node: str, what: str) -> None:
        disturb = {"cordon": self.fleet.cordon, "uncordon": self.fleet.uncordon, "delete": self.fleet.delete}[what]
        self.fleet.disturb_at(holder, effect, lambda: disturb(node))
        self.fleet.turns(holder, 12)

    @rule(seconds=long_s)
    def freeze(self, seconds: float) -> None:
        self.fleet.pass_time(seconds)

    @rule(seconds=long_s)
    def lose_api(self, seconds: float) -> None:
        self.fleet.lose_api(seconds)

    @rule(seconds=long_s)
    def refuse_evictions(self, seconds: float) -> None:
        self.fleet.refuse_evictions(seconds)

    @rule(node=nodes)
    def cordon(self, node: str) -> None:
        self.fleet.cordon(node)

    @rule(node=nodes)
    def uncordon(self, node: str) -> None:
        self.fleet.uncordon(node)

    @rule(node=nodes)
    def schedule(self, node: str) -> None:
        self.fleet.schedule(node)

    @rule(node=nodes, seconds=short_s)
    def reboot(self, node: str, seconds: float) -> None:
        self.fleet.reboot(node, seconds)

    @rule(node=nodes)
    def delete(self, node: str) -> None:
        self.fleet.delete(node)

    @rule(node=nodes)
    def join(self, node: str) -> None:
        self.fleet.join(node)

    @rule(node=nodes)
    def lose_connections(self, node: str) -> None:
        self.fleet.lose_connections(node)

    @rule(node=nodes, phase=phases)
    def break_step(self, node: str, phase: Phase) -> None:
        self.fleet.break_step(node, phase)

    @rule(node=nodes)
    def mend(self, node: str) -> None:
        self.fleet.mend(node)

    @rule(node=nodes)
    def fall_ill(self, node: str) -> None:
        self.fleet.fall_ill(node)

    @rule(node=nodes, times=st.integers(1, 3))
    def hold_gpu(self, node: str, times: int) -> None:
        self.fleet.hold_gpu(node, times)

    @rule(node=nodes)
    def stick(self, node: str) -> None:
        self.fleet.stick(node)

    @rule(node=nodes)
    def skip(self, node: str) -> None:
        self.fleet.skip(node)

    @rule(node=nodes)
    def hold_back(self, node: str) -> None:
        self.fleet.hold_back(node)

    @rule(node=nodes)
    def abandon(self, node: str) -> None:
        self.fleet.abandon(node)

    @rule()
    def pause(self) -> None:
        self.fleet.pause()

    @rule(seconds=st.sampled_from((-7200.0, -90.0, 90.0, 7200.0)))
    def put_clock(self, seconds: float) -> None:
        self.fleet.put_clock(seconds)

    @rule(version=targets, policy=policies)
    def declare(self, version: str, policy: int) -> None:
        self.fleet.declare(version, policy)

    def teardown(self) -> None:
        self.fleet.finish()
