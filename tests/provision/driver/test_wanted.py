"""Which version stands for a branch."""

from __future__ import annotations

import msgspec
import pytest

from provision.declaration.spec.model import Driver
from provision.planning.driver.wanted import BranchNode, ChosenVersion, follows_branch, resolve_branches
from provision.planning.node_plan import Problem

OLD, MIDDLE, NEW = "550.90.07", "550.144.03", "550.163.01"


def declared(**section: object) -> Driver:
    return msgspec.convert({"branch": "550", "source": "nvidia"} | section, Driver)


def node(name: str, *versions: str, **section: object) -> BranchNode:
    return BranchNode(name, declared(**section), frozenset(versions))


def versions_of(*nodes: BranchNode) -> dict[str, str]:
    """Return the chosen versions, and the codes of problems instead of versions."""
    return {
        name: chosen.version if isinstance(chosen, ChosenVersion) else chosen.code
        for name, chosen in resolve_branches(nodes).items()
    }


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param([node("n1", OLD, NEW, MIDDLE)], {"n1": NEW}, id="one node has its newest"),
        pytest.param(
            [node("n1", "550.54.15", "550.163.01"), node("n2", "550.54.15")],
            {"n1": "550.54.15", "n2": "550.54.15"},
            id="the newest that both have",
        ),
        pytest.param([node("n1", "550.9", "550.54.15")], {"n1": "550.54.15"}, id="numbers are compared, not letters"),
        pytest.param(
            [node("n1", OLD, "560.35.05", "5501.1", "535.309.01")],
            {"n1": OLD},
            id="versions of other branches are passed over",
        ),
        pytest.param(
            [node("n1", OLD, "550.999.01\n", "550.999.01-1", "550.٩.01", "550")],
            {"n1": OLD},
            id="what is no version of NVIDIA's is passed over",
        ),
        pytest.param(
            [node("n1", NEW), node("n2", OLD, source="distribution")],
            {"n1": NEW, "n2": OLD},
            id="another source is another group",
        ),
        pytest.param(
            [node("n1", NEW), node("n2", OLD, moduleParameters={"NVreg_A": 1})],
            {"n1": NEW, "n2": OLD},
            id="another declaration is another group",
        ),
        pytest.param(
            [node("n1", NEW), node("n2", "535.309.01", branch="535")],
            {"n1": NEW, "n2": "535.309.01"},
            id="another branch is another group",
        ),
        pytest.param(
            [node("n1", OLD), node("n2", NEW)],
            {"n1": "branch-without-common-version", "n2": "branch-without-common-version"},
            id="nothing in common",
        ),
        pytest.param(
            [node("n1", NEW), node("n2"), node("n3", "535.309.01", branch="535")],
            {"n1": "branch-not-available", "n2": "branch-not-available", "n3": "535.309.01"},
            id="a node without the branch stops its own group",
        ),
        pytest.param(
            [
                node("n1", NEW, version=OLD, branch=None),
                node("n2", NEW, enabled=False),
                node("n3", NEW, source="none"),
            ],
            {},
            id="nothing is chosen where no branch is followed",
        ),
        pytest.param([], {}, id="no nodes"),
    ],
)
def test_what_a_branch_stands_for(nodes: list[BranchNode], expected: dict[str, str]) -> None:
    assert versions_of(*nodes) == expected


def test_the_order_of_a_mapping_makes_no_other_group() -> None:
    parameters = {"NVreg_A": 1, "NVreg_B": 2}
    backwards = dict(reversed(parameters.items()))
    nodes = node("n1", OLD, NEW, moduleParameters=parameters), node("n2", OLD, moduleParameters=backwards)
    assert versions_of(*nodes) == {"n1": OLD, "n2": OLD}


@pytest.mark.parametrize(
    ("late", "expected"),
    [
        pytest.param([OLD, MIDDLE, NEW], MIDDLE, id="it could have a newer one"),
        pytest.param([OLD], "branch-without-common-version", id="it has an older one alone"),
        pytest.param(["570.86.15"], "branch-not-available", id="it has other branches"),
    ],
)
def test_who_comes_later_gets_what_the_others_were_given(late: list[str], expected: str) -> None:
    settled: dict[bytes, str] = {}
    resolve_branches([node("n1", OLD, MIDDLE), node("n2", MIDDLE, NEW)], settled)
    (chosen,) = resolve_branches([node("n3", *late)], settled).values()
    assert (chosen.version if isinstance(chosen, ChosenVersion) else chosen.code) == expected


def test_who_comes_first_of_its_group_later_chooses_for_it() -> None:
    settled: dict[bytes, str] = {}
    resolve_branches([node("n1", OLD, source="distribution")], settled)
    first = resolve_branches([node("n2", OLD, MIDDLE)], settled)
    second = resolve_branches([node("n3", MIDDLE, NEW)], settled)
    assert [chosen.version for chosen in (first | second).values() if isinstance(chosen, ChosenVersion)] == [MIDDLE] * 2


def reason(*nodes: BranchNode) -> str:
    (chosen,) = set(resolve_branches(nodes).values())
    assert isinstance(chosen, ChosenVersion)
    return chosen.reason


def test_the_reason_names_who_holds_the_others_back() -> None:
    assert reason(node("n1", OLD, NEW)) == "the newest version of branch 550"
    assert (
        reason(node("n1", OLD, NEW), node("n2", OLD), node("n3", OLD, NEW))
        == "the newest version of branch 550 that all 3 nodes with the same declaration can have; "
        "550.163.01 is not available to n2"
    )


def problem(*nodes: BranchNode) -> Problem:
    (found,) = set(resolve_branches(nodes).values())
    assert isinstance(found, Problem)
    return found


def test_nodes_with_nothing_in_common_are_told_with_their_newest() -> None:
    found = problem(node("n1", OLD), node("n2", NEW), node("n3", OLD), node("n4", MIDDLE, OLD))
    assert found.message == (
        "no version of driver branch 550 is available to every node that declares the same; "
        "the newest for each: 550.163.01 (n2); 550.144.03 (n4); 550.90.07 (n1, n3)"
    )
    assert "declare driver.version" in found.hint


def test_a_node_without_the_branch_is_named_with_the_branches_that_it_has() -> None:
    found = problem(node("n1", NEW), node("n2", "570.86.15", "535.309.01"), node("n3", "535.261.03"))
    assert found.message == "no version of driver branch 550 is available to n2, n3"
    assert "another branch (535, 570)" in found.hint


def test_a_group_of_many_is_told_in_few_words() -> None:
    found = problem(*(node(f"n{number}") for number in range(500)))
    assert found.message.endswith("n6, n7 and 492 more")


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({}, True),
        ({"branch": None, "version": OLD}, False),
        ({"enabled": False}, False),
        ({"source": "none"}, False),
    ],
)
def test_who_follows_a_branch(section: dict[str, object], expected: bool) -> None:  # noqa: FBT001 - a column of the table
    assert follows_branch(declared(**section)) is expected
