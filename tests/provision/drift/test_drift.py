"""A plan becomes differences, and equal differences of many nodes become one case."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.planning.drift import Comparison, DriftKind, Subject, differences_of, group
from provision.planning.engines.containerd.imports import DROP_IN_PATH
from provision.planning.node_plan import EDITED, Action, Disruption, Item, NodePlan, Problem, Role
from provision.planning.planner.runtime.hand_edits import overwrite_edits
from tests.provision.planner.test_drift import DRIFT, PIN_PATH
from tests.provision.samples import (
    configured,
    edit_file,
    edit_package,
    edit_service,
    make_facts,
    make_stack,
    plan,
    replace,
    text_of,
)

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts

ABSENT = f"{DROP_IN_PATH} is absent"


def named(facts: NodeFacts, node: str) -> NodePlan:
    return replace(plan(facts), node=node)


def compare(plans: dict[str, NodePlan]) -> Comparison:
    return group(plans, dict.fromkeys(plans, make_facts()))


def item(action: Action, target: str = "x", **more: object) -> Item:
    given = {"role": Role.DRIVER, "reason": "for a reason", **more}
    return Item(action=action, target=target, **given)  # type: ignore[arg-type] # fields of the item, by name


@pytest.mark.slow
@pytest.mark.parametrize(("change", "reason"), [(one[0], one[2]) for one in DRIFT.values()], ids=DRIFT.keys())
def test_what_somebody_changed_is_one_difference(change: object, reason: str) -> None:
    found = differences_of(plan(change(configured())))  # type: ignore[operator] # a function of facts

    assert [one.reason for one in found] == [reason]


def test_every_difference_of_a_thing_is_told_and_not_the_first() -> None:
    """`systemctl disable --now containerd`: nobody was told that it does not run."""
    facts = edit_service(configured(), "containerd.service", enabled="disabled", active="inactive")
    assert [one.reason for one in differences_of(plan(facts))] == [
        "containerd.service is not enabled: it would not start at boot",
        "containerd.service is inactive",
    ]
    written = configured().file(PIN_PATH)
    assert written is not None
    files = {**configured().files, PIN_PATH: replace(written, uid=7, mode="0600")}
    (found,) = differences_of(plan(replace(configured(), files=files)))
    assert found.reason == "the pin was changed: it belongs to 7:0, not to root, and has mode 0600, not 0644"


def test_a_node_as_declared_differs_in_nothing() -> None:
    assert differences_of(plan(configured())) == ()


def test_packages_that_differ_for_one_reason_are_one_difference_with_versions() -> None:
    facts = edit_package(edit_package(configured(), "libcuda1", version="550.1-1"), "nvidia-smi", version="550.1-1")

    (found,) = differences_of(plan(facts))

    assert (found.kind, found.reason) == (DriftKind.VERSION, "declared driver is 550.163.01")
    assert found.subjects == (
        Subject("libcuda1", "550.1-1", "550.163.01-2"),
        Subject("nvidia-smi", "550.1-1", "550.163.01-2"),
    )


def test_an_edited_file_is_a_difference_that_needs_force_to_be_mended() -> None:
    facts = configured()
    text = text_of(facts, DROP_IN_PATH).replace(
        'runtime_type = "io.containerd.runc.v2"\nbase', 'runtime_type = "x"\nbase'
    )
    edited = plan(edit_file(facts, DROP_IN_PATH, text), overwrite_edits(make_stack()))
    stopped = item(Action.START, reason="stopped")

    seen = compare({"n1": replace(edited, node="n1"), "n2": NodePlan(node="n2", items=(stopped,))})

    first, second = seen.cases
    assert first.difference.reason.startswith(f"{DROP_IN_PATH} was edited after grapnel wrote it: ")
    assert first.difference.reason.endswith("runtimes.nvidia.runtime_type is changed")
    assert (first.difference.kind, first.difference.subjects) == (DriftKind.FILE, (Subject(DROP_IN_PATH),))
    assert (first.nodes, first.needs_force, first.disruption) == (("n1",), True, Disruption.RESTART_RUNTIME)
    assert (second.nodes, second.needs_force) == (("n2",), False)
    assert (seen.drifted, seen.problems) == (("n1", "n2"), {})


def test_what_else_differs_on_a_node_with_an_edited_file_needs_force_too() -> None:
    edit = item(Action.WRITE, "/etc/x", from_=EDITED, reason="edited")
    plans = {
        "n1": NodePlan(node="n1", items=(edit, item(Action.HOLD))),
        "n2": NodePlan(node="n2", items=(item(Action.HOLD),)),
    }

    assert {case.difference.kind: case.needs_force for case in compare(plans).cases} == {
        DriftKind.HOLD: True,
        DriftKind.FILE: True,
    }


def test_files_whose_text_cannot_be_known_yet_are_left_out() -> None:
    bare = make_facts()
    amazon = replace(bare, node=replace(bare.node, os=replace(bare.node.os, id="amzn", version_id="2023")))
    planned = plan(amazon, make_stack(driver={"enabled": False}))
    reasons = [one.reason for one in differences_of(planned)]

    assert any(item.deferred for item in planned.items)
    assert "no container engine is installed" in reasons
    assert "depends on the configuration that the engine's package brings" not in reasons


@pytest.mark.parametrize("action", Action, ids=lambda action: action.value)
def test_a_plan_that_is_not_empty_is_a_difference_whatever_is_in_it(action: Action) -> None:
    assert differences_of(NodePlan(node="n1", items=(item(action),)))


def test_equal_nodes_are_one_case() -> None:
    bad = edit_file(configured(), DROP_IN_PATH, None)
    plans = {name: named(bad, name) for name in ("n1", "n2")} | {"n3": named(configured(), "n3")}

    seen = compare(plans)

    (case,) = seen.cases
    assert (case.difference.reason, case.nodes, case.disruption) == (ABSENT, ("n1", "n2"), Disruption.RESTART_RUNTIME)
    assert (seen.as_declared, seen.drifted, seen.problems) == (("n3",), ("n1", "n2"), {})


def test_the_most_frequent_case_comes_first() -> None:
    rare, frequent = item(Action.START, reason="rare"), item(Action.HOLD, reason="frequent")
    plans = {
        "n1": NodePlan(node="n1", items=(rare, frequent)),
        "n2": NodePlan(node="n2", items=(frequent,)),
    }

    assert [case.difference.reason for case in compare(plans).cases] == ["frequent", "rare"]


def test_a_node_with_problems_is_unknown_and_its_differences_are_told_nevertheless() -> None:
    problem = Problem(code="cursed", message="cursed", hint="")
    seen = compare({"n1": NodePlan(node="n1", items=(item(Action.HOLD),), problems=(problem,))})

    assert (seen.as_declared, seen.drifted, seen.problems) == ((), (), {"n1": (problem,)})
    assert [case.nodes for case in seen.cases] == [("n1",)]
