"""The model as a state machine: each step is something that may happen next."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.provision.rollout.model.events import KINDS, Event, Kind, happen
from tests.provision.rollout.model.fleet import Fleet
from tests.provision.rollout.model.policies import NEW, POLICIES


def event_of(kind: Kind) -> st.SearchStrategy[Event]:
    """Return every event of a kind."""
    return st.tuples(st.just(kind.name), *(st.sampled_from(choices) for choices in kind.choices))


events = st.one_of(*[event_of(kind) for kind in KINDS])


class RolloutMachine(RuleBasedStateMachine):
    """Engines at a small fleet, and everything that may happen to them."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet()

    @initialize(policy=st.integers(0, len(POLICIES) - 1))
    def declare_first(self, policy: int) -> None:
        self.fleet.declare(NEW, policy)
        self.fleet.apply("ada")

    @rule(event=events)
    def happens(self, event: Event) -> None:
        happen(self.fleet, event)

    @rule(number=st.integers(1, 40))
    def go_on(self, number: int) -> None:
        self.fleet.go_on("ada", number)

    def teardown(self) -> None:
        self.fleet.finish()
