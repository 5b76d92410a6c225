"""Which nodes stand together in the overview, and what is spelled out of many different plans."""

from __future__ import annotations

import io

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.apply.model import Assessment
from provision.planning.node_plan import Disruption, NodePlan, Problem
from provision.report.console import make_console
from provision.report.planned.alike import MOST_ROWS, kinds_of, spelled_out
from provision.report.planned.plans import render_plans
from provision.report.terminal import show
from tests.provision.apply.fakes import facts_of, item


def assessed(plan: NodePlan, hostname: str = "") -> Assessment:
    return Assessment(facts_of(hostname or plan.node), plan)


def with_problem(node: str, message: str) -> Assessment:
    return assessed(NodePlan(node=node, problems=(Problem(code="engine-missing", message=message, hint="install"),)))


def groups(answers: dict[str, Assessment], refusals: dict[str, str] | None = None) -> list[list[str]]:
    return [kind.nodes for kind in kinds_of(answers, refusals or {})]


PLANS = st.builds(
    NodePlan,
    node=st.just("x"),
    items=st.lists(st.builds(item, st.sampled_from("ab"), to=st.sampled_from("12")), max_size=2).map(tuple),
    warnings=st.lists(
        st.builds(Problem, code=st.just("c"), message=st.sampled_from(["old", "new"]), hint=st.just("")), max_size=1
    ).map(tuple),
)


@given(st.lists(st.tuples(PLANS, st.sampled_from(["", "paused"])), max_size=12))
def test_nodes_stand_together_exactly_when_their_plans_differ_in_the_name_alone(
    fleet: list[tuple[NodePlan, str]],
) -> None:
    plans = {f"n{number}": msgspec.structs.replace(plan, node=f"n{number}") for number, (plan, _) in enumerate(fleet)}
    refusals = {f"n{number}": refusal for number, (_, refusal) in enumerate(fleet) if refusal}
    expected: list[list[str]] = []
    for node, plan in plans.items():
        for group in expected:
            first = msgspec.structs.replace(plans[group[0]], node=node)
            if first == plan and refusals.get(group[0]) == refusals.get(node):
                group.append(node)
                break
        else:
            expected.append([node])

    assert groups({node: assessed(plan) for node, plan in plans.items()}, refusals) == expected


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        pytest.param(
            {"n1": "n1 has no docker", "n2": "n2 has no docker"},
            [(["n1", "n2"], "the node has no docker")],
            id="each is named in its own",
        ),
        pytest.param(
            {"n1": "n1 has no docker"}, [(["n1"], "n1 has no docker")], id="one alone keeps the words as they were made"
        ),
        pytest.param(
            {"n1": "no docker", "n2": "no docker"}, [(["n1", "n2"], "no docker")], id="nobody is named in any"
        ),
        pytest.param(
            {"n1": "n1 is like n2", "n2": "n2 is like n1"},
            [(["n1"], "n1 is like n2"), (["n2"], "n2 is like n1")],
            id="another node's name keeps them apart",
        ),
        pytest.param(
            {"n1": "n1: n10 and n1.example differ", "n10": "n10: n10 and n1.example differ"},
            [(["n1"], "n1: n10 and n1.example differ"), (["n10"], "n10: n10 and n1.example differ")],
            id="a name within a longer one is another word",
        ),
        pytest.param(
            {"docker": "docker has no docker", "n1": "n1 has no docker"},
            [(["docker"], "docker has no docker"), (["n1"], "n1 has no docker")],
            id="a node that is called as what it lacks",
        ),
        pytest.param(
            {"n1": "dpkg on n1, pid 7", "n2": "dpkg on n2, pid 8"},
            [(["n1"], "dpkg on n1, pid 7"), (["n2"], "dpkg on n2, pid 8")],
            id="what else differs keeps them apart",
        ),
    ],
)
def test_problems_that_name_their_node(messages: dict[str, str], expected: list[tuple[list[str], str]]) -> None:
    kinds = kinds_of({node: with_problem(node, message) for node, message in messages.items()}, {})

    assert [(kind.nodes, kind.plan.problems[0].message) for kind in kinds] == expected


def test_a_node_may_call_itself_otherwise_than_the_inventory_does() -> None:
    problem = (
        (Problem(code="c", message="gpu-a has no docker", hint=""),),
        (Problem(code="c", message="gpu-b has no docker", hint=""),),
    )
    answers = {
        "rack1": assessed(NodePlan(node="rack1", problems=problem[0]), "gpu-a"),
        "rack2": assessed(NodePlan(node="rack2", problems=problem[1]), "gpu-b"),
    }

    assert groups(answers) == [["rack1", "rack2"]]


def test_refusals_name_their_node_too() -> None:
    answers = {name: assessed(NodePlan(node=name, items=(item("libcuda1"),))) for name in ("n1", "n2")}
    refusals = {name: f"{name} is not a node of cluster test" for name in answers}

    (kind,) = kinds_of(answers, refusals)

    assert kind.nodes == ["n1", "n2"]
    assert kind.refusal == "the node is not a node of cluster test"


def different(nodes: int) -> dict[str, Assessment]:
    return {
        f"n{number}": assessed(
            NodePlan(node=f"n{number}", items=(item(f"lib{number}", disruption=Disruption.DRAIN), item("libcuda1")))
        )
        for number in range(nodes)
    }


def test_the_first_of_many_different_plans_are_spelled_out() -> None:
    kinds = kinds_of(different(MOST_ROWS), {})

    shown, others = spelled_out(kinds)

    assert sum(kind.rows for kind in shown) <= MOST_ROWS < sum(kind.rows for kind in shown) + others[0].rows
    assert [*shown, *others] == kinds


def test_a_single_plan_is_spelled_out_however_long_it_is() -> None:
    plan = NodePlan(node="n1", items=tuple(item(f"lib{number}") for number in range(2 * MOST_ROWS)))

    shown, others = spelled_out(kinds_of({"n1": assessed(plan)}, {}))

    assert (len(shown), others) == (1, [])


def test_problems_are_spelled_out_before_changes() -> None:
    kinds = kinds_of(different(MOST_ROWS) | {"bad": with_problem("bad", "bad has no docker")}, {})

    shown, others = spelled_out(kinds)

    assert shown[-1].nodes == ["bad"]
    assert all(not kind.plan.problems for kind in others)


def test_what_is_not_spelled_out_is_counted_with_what_it_costs() -> None:
    problems = {f"bad{number}": with_problem(f"bad{number}", f"no GPU {number}") for number in range(MOST_ROWS)}
    answers = different(MOST_ROWS) | problems
    stream = io.StringIO()

    show(make_console(stream, width=160), render_plans(answers))

    told = " ".join(stream.getvalue().split())
    left = MOST_ROWS // 2
    assert f"and {MOST_ROWS - 10} more 2 changes, drain {MOST_ROWS} different plans, not spelled out: `gr" in told
    assert f"and {left - 10} more 1 problem problem: engine-missing {left} different plans, not spelled out" in told
    assert f"{2 * MOST_ROWS} nodes: {MOST_ROWS} to change ({2 * MOST_ROWS} changes), {MOST_ROWS} with problems" in told
