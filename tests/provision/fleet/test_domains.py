"""What `check` finds about domains where the inventory is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.declaration.fleet.endpoint import Endpoint
from provision.declaration.fleet.model import FleetNode
from provision.declaration.fleet.waves import judge_domain, members_by_group
from provision.declaration.spec.text.findings import Severity
from tests.provision.samples import make_stack

if TYPE_CHECKING:
    from provision.declaration.spec.rules.remark import Remark

RACKS = {"domains": {"groups": ["rack1", "rack2"]}, "maxUnavailable": 4, "maxParallel": 4}


def node(name: str, *groups: str, driver: str = "550.163.01", **rollout: object) -> FleetNode:
    stack = make_stack(driver={"version": driver}, rollout={**RACKS, **rollout})
    return FleetNode(name=name, groups=groups, stack=stack, origins={}, endpoint=Endpoint(""))


def found(*nodes: FleetNode) -> list[Remark]:
    return list(judge_domain(nodes[0], members_by_group(nodes), len(nodes)))


FIRST, SECOND = node("n1", "rack1"), node("n2", "rack2")


def test_domains_that_fit_are_in_order() -> None:
    assert found(FIRST, SECOND) == []
    assert found(node("n1", domains=None)) == []
    assert found(node("n1", domains={"nodeLabel": "nvidia.com/gpu.clique"})) == []


@pytest.mark.parametrize(
    ("nodes", "words", "severity"),
    [
        pytest.param((FIRST,), "no group of the inventory is named 'rack2'", Severity.ERROR, id="no such group"),
        pytest.param((node("n1", "rack1", "rack2"),), "n1 is in rack1, rack2", Severity.ERROR, id="in two of them"),
        pytest.param(
            (node("n1", "rack1", maxUnavailable="25%"), node("n3", "rack1"), SECOND),
            "maxUnavailable allows 25%, and the domain 'rack1' of 2 nodes is changed as one",
            Severity.ERROR,
            id="larger than may be unavailable",
        ),
        pytest.param(
            (node("n1", "rack1", maxParallel=1), node("n3", "rack1"), SECOND),
            "the domain 'rack1' of 2 nodes begins only when nothing else is under way",
            Severity.WARNING,
            id="larger than changes at once",
        ),
        pytest.param(
            (FIRST, node("n3", "rack1", driver="535.1"), SECOND),
            "n1 and n3 of the domain 'rack1' declare different drivers",
            Severity.ERROR,
            id="two drivers in one domain",
        ),
    ],
)
def test_what_contradicts_is_found(nodes: tuple[FleetNode, ...], words: str, severity: Severity) -> None:
    (remark,) = found(*nodes)
    assert words in remark.message
    assert remark.severity is severity
    assert remark.hint
