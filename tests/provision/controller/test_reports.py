"""What becomes of nodes that rounds have not brought to their declaration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from provision.apply.model import Failure, NodeResult, Status
from provision.controller.attempts import LONGEST_S
from provision.controller.choice import choose
from provision.controller.lane import Told
from provision.controller.marker import Mark, Word
from provision.controller.reports import Reports, StackMemory
from provision.controller.rounds import Outcome
from provision.controller.standings import stands
from provision.rollout.model import Phase
from provision.stacks.derive import NodeIs
from tests.provision.controller.samples import FINGERPRINT, record, seen
from tests.provision.stacks.samples import stack

if TYPE_CHECKING:
    from provision.controller.nodes import SeenNode

STOP = "n1 failed in swap"


@dataclass
class World:
    """A stack of two nodes that a round was about: the parts that `Reports` asks, in memory."""

    known: dict[str, SeenNode] = field(default_factory=lambda: {name: seen(name) for name in ("n1", "n2")})
    marks: list[Mark] = field(default_factory=list)

    def get(self, name: str) -> SeenNode | None:
        return self.known.get(name)

    def write(self, mark: Mark) -> None:
        self.marks.append(mark)

    def ended(self, _told: Told) -> None:
        """Do nothing: no lane runs."""

    def take(self, *results: NodeResult) -> StackMemory:
        """Have a round end with these results; return what is remembered."""
        part: Any = self
        memory = StackMemory(lane=part)
        order = choose(stack(), FINGERPRINT, self.known, memory.attempts, 0.0)
        reports = Reports(nodes=part, marker=part, say=lambda _text: None, clock=lambda: 0.0)
        reports.take(Told(order, outcome=Outcome(results, stop=STOP)), memory)
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
