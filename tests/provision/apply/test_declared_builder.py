"""Where a declaration says who builds, nobody else does; and what the plan says of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from provision.cli.change.apply import apply_nodes
from provision.cli.foresee.plan import show_plans
from provision.planning.driver_change import change_id
from tests.provision.apply.test_builders import BOTH, EACH, HAS, everywhere, fleet_of, four, said, scope, stage, three
from tests.provision.apply.workshop import (
    Machine,
    change_of,
    planner,
    workshop_context,
)
from tests.provision.builds.samples import KERNEL, OTHER_KERNEL

if TYPE_CHECKING:
    from pathlib import Path


def test_with_each_every_node_builds_its_own(tmp_path: Path) -> None:
    fleet = three()

    assert stage(workshop_context(fleet, tmp_path / "shelf", declared=everywhere(fleet, EACH)), fleet) == 0

    assert list(fleet.built()) == ["n1", "n2", "n3"]


def test_a_node_that_builds_its_own_neither_gives_nor_takes(tmp_path: Path) -> None:
    fleet = four()

    assert stage(workshop_context(fleet, tmp_path / "shelf", declared={"n1": EACH}), fleet) == 0

    assert list(fleet.built()) == ["n1", "n2", "n3"]


def test_modules_come_from_the_declared_builder_alone(tmp_path: Path) -> None:
    fleet = three()
    declared = everywhere(fleet, {"builder": "n3"})

    assert stage(workshop_context(fleet, tmp_path / "shelf", declared=declared), fleet) == 0

    assert fleet.built() == {"n3": [KERNEL]}


@pytest.mark.parametrize(
    ("builder", "words"),
    [
        pytest.param(Machine(broken="stage"), "since n3 did not provide it", id="it fails"),
        pytest.param(
            Machine(kernels=(OTHER_KERNEL,)),
            "since the declared builder n3 is not among these nodes, or not of their kind",
            id="it has another kernel",
        ),
    ],
)
def test_nobody_takes_over_from_a_declared_builder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], builder: Machine, words: str
) -> None:
    fleet = fleet_of(n1=Machine(), n2=Machine(), n3=builder)
    declared = everywhere(fleet, {"builder": "n3"})

    stage(workshop_context(fleet, tmp_path / "shelf", declared=declared), fleet)

    assert {name: fleet.built()[name] for name in ("n1", "n2")} == {"n1": [KERNEL], "n2": [KERNEL]}
    assert words in said(capsys)


def test_what_others_have_built_is_not_for_nodes_with_a_declared_builder(tmp_path: Path) -> None:
    fleet = three()
    stage(workshop_context(fleet, tmp_path / "shelf"), fleet)
    later = fleet_of(n4=Machine())

    assert stage(workshop_context(later, tmp_path / "shelf", declared={"n4": {"builder": "n5"}}), later) == 0

    assert later.built() == {"n4": [KERNEL]}


@pytest.mark.parametrize(("is_signed", "builders"), [(False, ["n1", "n2", "n3"]), (True, ["n1", "n2"])])
def test_under_secure_boot_a_module_of_others_needs_a_key_of_the_site(
    tmp_path: Path, *, is_signed: bool, builders: list[str]
) -> None:
    fleet = fleet_of(**{f"n{number}": Machine(secure_boot=True) for number in (1, 2, 3)})

    assert stage(workshop_context(fleet, tmp_path / "shelf", planner(is_signed=is_signed)), fleet) == 0

    assert list(fleet.built()) == builders


@pytest.mark.parametrize("drains", [True, False])
def test_nodes_that_learn_their_package_source_first_share_as_well(tmp_path: Path, *, drains: bool) -> None:
    fleet = fleet_of(**{f"n{number}": Machine(knows_source=False) for number in (1, 2, 3)})
    context = workshop_context(fleet, tmp_path / "shelf", planner(drains=drains))

    assert apply_nodes(context, scope(context, fleet), parallel=2, consent=True) == 0

    assert fleet.built() == BOTH


def test_the_plan_says_whether_a_declared_builder_still_has_to_build(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for builder, expected in ((Machine(), ("builds", 1)), (Machine(staged=change_id(change_of((KERNEL,)))), HAS)):
        fleet = fleet_of(n1=Machine(), n2=Machine(), n3=builder)
        context = workshop_context(fleet, tmp_path / "shelf", declared=everywhere(fleet, {"builder": "n3"}))

        show_plans(context, scope(context, fleet), as_json=True, tell_changes=False)

        (found,) = json.loads(capsys.readouterr().out)["builds"]
        assert (found["nodes"], found["receivers"]) == (["n3"], ["n1", "n2"])
        assert (found["how"], found["builds"]) == expected


def test_a_builder_that_fails_in_place_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = fleet_of(n1=Machine(broken="stage"), n2=Machine(), n3=Machine(), n4=Machine())
    context = workshop_context(fleet, tmp_path / "shelf", planner(drains=False))

    assert apply_nodes(context, scope(context, fleet), parallel=2, consent=True) == 1

    lines = [line for line in capsys.readouterr().out.splitlines() if "failed: nv.c:12: error: too few" in line]
    assert len([line for line in lines if "n1" in line and "…" not in line]) == 1, lines
    assert {name: fleet.machine(name).built for name in ("n3", "n4")} == {"n3": [KERNEL], "n4": []}
