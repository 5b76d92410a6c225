"""What becomes of nodes that rounds have not brought to their declaration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from provision.apply.model import Failure, NodeResult, Status
from provision.controller.decision.attempts import LONGEST_S
from provision.controller.decision.choice import choose
from provision.controller.decision.standings import stands
from provision.controller.marker import Mark, Word
from provision.controller.rounds.apply import RoundResult
from provision.controller.rounds.lane import Told
from provision.controller.rounds.reports import Reports, StackMemory
from provision.controller.stacks.derive import NodeIs
from provision.rollout.model import Phase
from tests.provision.controller.samples import FINGERPRINT, record, seen
from tests.provision.stacks.samples import stack

if TYPE_CHECKING:
    from provision.controller.decision.choice import Order
    from provision.controller.nodes import SeenNode

STOP = "n1 failed in swap"


@dataclass
class World:
    """A stack of two nodes that a round was about: the parts that `Reports` asks, in memory."""

    known: dict[str, SeenNode] = field(default_factory=lambda: {name: seen(name) for name in ("n1", "n2")})
    marks: list[Mark] = field(default_factory=list)
    wanted: frozenset[str] = frozenset()

    def get(self, name: str) -> SeenNode | None:
        return self.known.get(name)

    def write(self, mark: Mark) -> None:
        self.marks.append(mark)

    def mark(self, mark: Mark) -> None:
        self.marks.append(mark)

    def ended(self, _told: Told) -> None:
        """Do nothing: no lane runs."""

    def wanted_again(self, _order: Order) -> frozenset[str]:
        """Return the nodes that the round was to put back, where that is over."""
        return self.wanted

    def take(self, *results: NodeResult) -> StackMemory:
        """Have a round end with these results; return what is remembered."""
        part: Any = self
        memory = StackMemory(lane=part)
        order = choose(stack(), FINGERPRINT, self.known, memory.attempts, 0.0)
        reports = Reports(nodes=part, marker=part, say=lambda _text: None, clock=lambda: 0.0)
        reports.take(Told(order, outcome=RoundResult(results, stop=STOP)), memory)
        return memory


def result(name: str, status: Status, message: str) -> NodeResult:
    return NodeResult(name, status, failure=Failure(status, message))


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        pytest.param(result("n2", Status.WAITING, f"stopped: {STOP}"), f"stopped: {STOP}", id="its turn did not come"),
        pytest.param(NodeResult("n2", Status.SKIPPED, note="it is skipped"), "it is skipped", id="somebody skips it"),
    ],
)
def test_a_node_that_was_not_begun_waits_and_only_the_failed_one_counts(second: NodeResult, reason: str) -> None:
    """Nodes that a stopped rollout had left alone were counted as failed, and told as failures."""
    world = World()
    memory = world.take(result("n1", Status.FAILED, "it broke"), second)
    order = choose(stack(), FINGERPRINT, world.known, memory.attempts, LONGEST_S - 1.0)
    found = stands(order, (), None, memory.attempts)
    assert (found["n1"].how, found["n1"].reason) == (NodeIs.FAILED, "it broke")
    assert (found["n2"].how, found["n2"].reason) == (NodeIs.WAITING, reason)
    assert memory.failures == 1
    assert order.due == {"n1"}


def test_a_node_that_an_earlier_rollout_left_failed_is_no_waiting_one() -> None:
    world = World({"n1": seen("n1", record=record(Phase.FAILED))})
    memory = world.take(result("n1", Status.WAITING, "stopped: it failed"))
    assert memory.failures == 1
    assert [mark.word for mark in world.marks] == [Word.FAILED]


def test_a_node_that_was_put_back_for_a_reason_that_is_over_is_due_at_once() -> None:
    """An uninstall was given up just before the round had ended: its nodes waited for half an hour."""
    world = World(wanted=frozenset({"n1"}))
    back = "the controller is being uninstalled"
    memory = world.take(*(NodeResult(name, Status.WAITING, note=back) for name in ("n1", "n2")))
    order = choose(stack(), FINGERPRINT, world.known, memory.attempts, LONGEST_S - 1.0)
    assert order.due == {"n1"}


def test_a_claim_says_what_the_daemon_had_said_before_the_node_was_looked_at() -> None:
    """What it says meanwhile may be news: another driver, by somebody who was at the node as well."""
    world = World({"n1": seen("n1", said="2026-11-28T11:59:00Z")})
    part: Any = world
    memory = StackMemory(lane=part)
    order = choose(stack(), FINGERPRINT, dict(world.known), memory.attempts, 0.0)
    memory.fingerprint, memory.fingerprint_of = FINGERPRINT, (order.stack.uid, order.stack.generation)
    world.known["n1"] = seen("n1", said="2026-11-28T12:00:00Z")
    Reports(nodes=part, marker=part, say=lambda _text: None, clock=lambda: 0.0).take(Told(order, done=("n1",)), memory)
    assert [(mark.word, mark.looked) for mark in world.marks] == [(Word.AS_DECLARED, "2026-11-28T11:59:00Z")]
