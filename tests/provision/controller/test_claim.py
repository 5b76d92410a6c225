"""What contradicts that a node is as declared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.controller.decision.claim import contradiction
from provision.rollout.model import ChangeKind, Phase
from tests.provision.controller.samples import record, seen
from tests.provision.samples import make_stack

if TYPE_CHECKING:
    from provision.controller.nodes import SeenNode

DECLARED, OTHER = "550.163.01", "535.261.03"
VERSION = {"version": DECLARED}
BRANCH = {"version": None, "branch": "550"}


def by(phase: Phase, target: str = DECLARED, origin: str = OTHER, **more: object) -> SeenNode:
    return seen(record=record(phase, target=target, origin=origin, **more))


def reports(version: str) -> SeenNode:
    return seen(driver=version)


@pytest.mark.parametrize(
    ("node", "driver"),
    [
        pytest.param(seen(), VERSION, id="nothing is known"),
        pytest.param(by(Phase.DONE), VERSION, id="its last change was to it"),
        pytest.param(by(Phase.DONE), BRANCH, id="its last change was to one of the branch"),
        pytest.param(by(Phase.DONE, target=""), BRANCH, id="its last change was to what a branch stood for"),
        pytest.param(by(Phase.RETURNED, OTHER, DECLARED, is_returning=True), VERSION, id="it came back to it"),
        pytest.param(by(Phase.DONE, OTHER, kind=ChangeKind.REBOOT), VERSION, id="its last change was a reboot"),
        pytest.param(by(Phase.DONE, OTHER), {"enabled": False}, id="no driver is declared"),
        pytest.param(by(Phase.FAILED, retry=True), VERSION, id="it failed, and is tried again for that"),
        pytest.param(reports(DECLARED), VERSION, id="its daemon reports it"),
        pytest.param(reports(DECLARED), BRANCH, id="its daemon reports one of the branch"),
        pytest.param(reports(OTHER), {"enabled": False}, id="its daemon reports what is nobody's business"),
    ],
)
def test_a_node_may_be_as_declared(node: SeenNode, driver: dict[str, object]) -> None:
    assert contradiction(node, make_stack(driver=driver)) == ""


@pytest.mark.parametrize(
    ("node", "driver", "named"),
    [
        pytest.param(by(Phase.DONE, OTHER), VERSION, OTHER, id="its last change was to another driver"),
        pytest.param(by(Phase.DONE, OTHER), BRANCH, OTHER, id="its last change was to another branch"),
        pytest.param(by(Phase.RETURNED, is_returning=True), VERSION, OTHER, id="it came back to its former driver"),
        pytest.param(by(Phase.RETURNED, origin=""), VERSION, "no driver", id="it came back to having none"),
        pytest.param(by(Phase.FAILED, failed_in=Phase.SWAP), VERSION, "swap", id="it is out of service"),
        pytest.param(by(Phase.FAILED, failed_in=Phase.SWAP), {"enabled": False}, "swap", id="it is out of it anyhow"),
        pytest.param(reports(OTHER), VERSION, OTHER, id="its daemon reports another driver"),
        pytest.param(reports("55.1"), BRANCH, "55.1", id="its daemon reports another branch"),
    ],
)
def test_a_node_that_says_otherwise_is_not_as_declared(node: SeenNode, driver: dict[str, object], named: str) -> None:
    assert named in contradiction(node, make_stack(driver=driver))
