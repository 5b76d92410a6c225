"""A module is built by two nodes for all of a kind, and handed on if both come to the same, whoever fails or lies."""

from __future__ import annotations

import itertools
import json
import threading
from typing import TYPE_CHECKING

import pytest

from provision.apply.converge import assess
from provision.apply.model import Failure, Note, Status
from provision.apply.supply.builders import provide_modules
from provision.apply.supply.kinds import Kinds
from provision.apply.supply.supply import drawn
from provision.cli.change.apply import apply_nodes
from provision.cli.change.stage import stage_fleet
from provision.cli.foresee.plan import show_plans
from provision.cli.session.scope import Scope
from tests.provision.apply.fakes import Watcher, cluster_of
from tests.provision.apply.workshop import (
    Machine,
    Workshop,
    evil_for,
    modules_for,
    planner,
    workshop_context,
)
from tests.provision.builds.samples import KERNEL, OTHER_KERNEL
from tests.provision.rollout.fakes import Clock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from provision.apply.context import ApplyContext

EACH: Mapping[str, object] = {"build": "each"}


def scope(context: ApplyContext, fleet: Workshop) -> Scope:
    return Scope(stacks=context.declarations.stacks, cluster=cluster_of(fleet), clock=Clock(), poll_s=0.001)


def stage(context: ApplyContext, fleet: Workshop, parallel: int = 2) -> int:
    return stage_fleet(context, scope(context, fleet), parallel=parallel)


def fleet_of(**nodes: Machine) -> Workshop:
    return Workshop(dict(nodes))


def three() -> Workshop:
    return fleet_of(n1=Machine(), n2=Machine(), n3=Machine())


def four() -> Workshop:
    return fleet_of(n1=Machine(), n2=Machine(), n3=Machine(), n4=Machine())


HAS = ("has built", 0)
BOTH = {"n1": [KERNEL], "n2": [KERNEL]}


def everywhere(fleet: Workshop, declared: Mapping[str, object]) -> dict[str, Mapping[str, object]]:
    return dict.fromkeys(fleet.nodes, declared)


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("parallel", [1, 5])
def test_two_nodes_build_and_the_others_are_handed_what_both_came_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], parallel: int
) -> None:
    fleet = four()

    assert stage(workshop_context(fleet, tmp_path / "shelf"), fleet, parallel) == 0

    assert fleet.built() == BOTH
    assert [list(fleet.machine(name).handed) for name in ("n3", "n4")] == [[f"modules/{KERNEL}.tar.gz"]] * 2
    requests = [request for request in fleet.requests if request.nodes == ("n3",)]
    assert [request.extra_vars.get("grapnel_offline") for request in requests] == [False]
    output = said(capsys)
    of = f"driver 550.163.01 (proprietary) for kernel {KERNEL}"
    assert f"n1 builds {of}, compared with that of n2, for n3, n4" in output
    assert f"n2 builds {of}, compared with that of n1, for n3, n4" in output
    assert f"built alike by n1, n2, the {of} goes to 2 others: 0.0 MB, 566 s of CPU twice instead of 4 times" in output
    assert "n1, n2 staged 135 MB, built with 566 s of CPU" in output
    assert "n3, n4 staged 135 MB, module built by n1, n2" in output


def test_who_builds_is_drawn_and_not_named_first(tmp_path: Path) -> None:
    fleet = four()
    draws: list[Sequence[str]] = []

    def draw(nodes: Sequence[str]) -> Sequence[str]:
        draws.append(nodes)
        return list(reversed(nodes))

    assert stage(workshop_context(fleet, tmp_path / "shelf", draw=draw), fleet) == 0

    assert fleet.built() == {"n3": [KERNEL], "n4": [KERNEL]}
    assert set(draws[0]) == set(fleet.nodes)


def test_the_draw_has_every_order() -> None:
    assert {tuple(drawn(["n1", "n2", "n3"])) for _ in range(1000)} == set(itertools.permutations(["n1", "n2", "n3"]))


def test_a_node_that_builds_something_else_gets_it_into_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = four()
    fleet.nodes["n2"] = Machine(gives=evil_for(KERNEL))

    assert stage(workshop_context(fleet, tmp_path / "shelf"), fleet) == 0

    assert list(fleet.built()) == ["n1", "n2", "n3", "n4"]
    assert [fleet.machine(name).handed for name in fleet.nodes] == [{}] * 4
    output = said(capsys)
    assert "n3, n4: to build driver 550.163.01 (proprietary)" in output
    assert "have built different modules (nvidia-current.ko)" in output
    later = fleet_of(n5=Machine(), n6=Machine(), n7=Machine())
    assert stage(workshop_context(later, tmp_path / "shelf"), later) == 0
    assert list(later.built()) == ["n5", "n6", "n7"]
    assert "have built different modules" in said(capsys)


def test_what_one_node_gave_is_nowhere_until_the_other_has_given_its_own(tmp_path: Path) -> None:
    fleet = four()
    seen: list[list[str]] = []
    fleet.on_build = lambda _node: seen.append([name for name in fleet.nodes if fleet.machine(name).handed])

    stage(workshop_context(fleet, tmp_path / "shelf"), fleet, 1)

    assert seen == [[], []]


def test_a_run_that_ended_between_the_two_goes_on_with_one_more(tmp_path: Path) -> None:
    fleet, cancel = four(), threading.Event()
    fleet.on_build = lambda node: cancel.set() if node == "n2" else None
    context = workshop_context(fleet, tmp_path / "shelf")
    answers = assess(context, fleet.nodes, Watcher(), threading.Event())
    kinds = Kinds(context, dict(answers), frozenset(fleet.nodes))
    provide_modules(context, kinds, Watcher(), parallel=1, cancel=cancel)
    fleet.on_build = lambda _node: None
    assert fleet.machine("n1").staged
    assert not fleet.machine("n3").handed

    assert stage(workshop_context(fleet, tmp_path / "shelf"), fleet) == 0

    assert fleet.machine("n3").built == []
    assert fleet.machine("n4").built == []


def test_one_machine_under_several_names_is_no_second_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = fleet_of(**{f"n{number}": Machine(machine="twin") for number in range(1, 5)})

    assert stage(workshop_context(fleet, tmp_path / "shelf"), fleet) == 0

    assert list(fleet.built()) == list(fleet.nodes)
    assert "no two of them are known to be different machines" in said(capsys)


def test_nodes_that_are_changed_in_place_get_it_too(tmp_path: Path) -> None:
    fleet = three()
    context = workshop_context(fleet, tmp_path / "shelf", planner(drains=False))

    assert apply_nodes(context, scope(context, fleet), parallel=2, consent=True) == 0

    assert fleet.built() == BOTH
    assert all("driver" in fleet.machine(name).packages for name in fleet.nodes)


def test_a_rollout_begins_with_modules_that_two_have_built(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = three()
    context = workshop_context(fleet, tmp_path / "shelf")

    assert apply_nodes(context, scope(context, fleet), parallel=2, consent=True) == 0

    assert fleet.built() == BOTH
    playbooks = [playbook for playbook, _ in fleet.runs]
    assert sorted(playbooks[1:5]) == ["built_module", "built_module", "stage", "stage"]
    assert playbooks[5] == "stage"
    assert "3 nodes: 3 converged" in said(capsys)


def test_nodes_of_other_kinds_build_their_own(tmp_path: Path) -> None:
    kinds = ((KERNEL,), (OTHER_KERNEL,))
    fleet = fleet_of(**{f"n{number}": Machine(kernels=kinds[number % 2]) for number in range(6)})

    assert stage(workshop_context(fleet, tmp_path / "shelf"), fleet) == 0

    assert fleet.built() == {"n0": [KERNEL], "n1": [OTHER_KERNEL], "n2": [KERNEL], "n3": [OTHER_KERNEL]}


def test_a_node_with_a_kernel_more_is_handed_one_and_builds_one(tmp_path: Path) -> None:
    fleet = fleet_of(
        n1=Machine(),
        n2=Machine(),
        n3=Machine(kernels=(KERNEL, OTHER_KERNEL)),
        n4=Machine(kernels=(OTHER_KERNEL,)),
        n5=Machine(kernels=(OTHER_KERNEL,)),
    )

    assert stage(workshop_context(fleet, tmp_path / "shelf"), fleet) == 0

    assert fleet.built() == {"n1": [KERNEL], "n2": [KERNEL], "n3": [OTHER_KERNEL], "n4": [OTHER_KERNEL]}


def test_one_node_alone_gives_nothing_away(tmp_path: Path) -> None:
    fleet = fleet_of(n1=Machine(), n2=Machine(kernels=(OTHER_KERNEL,)))

    assert stage(workshop_context(fleet, tmp_path / "shelf"), fleet) == 0

    assert fleet.built() == {"n1": [KERNEL], "n2": [OTHER_KERNEL]}
    assert "built_module" not in [playbook for playbook, _ in fleet.runs]
    assert not (tmp_path / "shelf").exists()


def test_a_later_run_hands_out_what_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = three()
    stage(workshop_context(fleet, tmp_path / "shelf"), fleet)
    later = fleet_of(n4=Machine())

    assert stage(workshop_context(later, tmp_path / "shelf"), later) == 0

    assert later.built() == {}
    assert f"n1, n2 built earlier driver 550.163.01 (proprietary) for kernel {KERNEL}, for n4" in said(capsys)


def test_what_is_kept_and_damaged_is_built_again(tmp_path: Path) -> None:
    fleet = three()
    stage(workshop_context(fleet, tmp_path / "shelf"), fleet)
    (archive,) = (tmp_path / "shelf").glob("*.tar.gz")
    archive.write_bytes(b"cut")
    later = fleet_of(n4=Machine(), n5=Machine(), n6=Machine())

    assert stage(workshop_context(later, tmp_path / "shelf"), later) == 0

    assert later.built() == {"n4": [KERNEL], "n5": [KERNEL]}


@pytest.mark.parametrize(
    "broken", [Machine(broken="stage"), Machine(broken="give"), Machine(gives={"/etc/passwd": b"x"})],
    ids=["its build fails", "it gives nothing", "its archive is hostile"],
)  # fmt: skip
def test_a_third_node_takes_over(tmp_path: Path, capsys: pytest.CaptureFixture[str], broken: Machine) -> None:
    fleet = fleet_of(n1=broken, n2=Machine(), n3=Machine(), n4=Machine())

    stage(workshop_context(fleet, tmp_path / "shelf"), fleet)

    assert [name for name in fleet.built() if name != "n1"] == ["n2", "n3"]
    output = said(capsys)
    assert "n1 the others do not get its driver 550.163.01" in output
    of = f"driver 550.163.01 (proprietary) for kernel {KERNEL}"
    assert f"n3 builds {of}, compared with that of n2, for n4" in output


def test_a_hostile_archive_is_never_handed_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = modules_for(KERNEL) | {"./dkms_source_tree/dkms.conf": b"touch /root/was-here"}
    fleet = fleet_of(n1=Machine(gives=evil), n2=Machine(), n3=Machine(), n4=Machine())

    assert stage(workshop_context(fleet, tmp_path / "shelf"), fleet) == 0

    assert "does not belong to built modules" in said(capsys)
    (archive,) = (tmp_path / "shelf").glob("*.tar.gz")
    assert fleet.machine("n4").handed == {f"modules/{KERNEL}.tar.gz": archive.name}


def test_a_builder_that_dies_is_one_failure_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = four()

    def die(name: str) -> None:
        fleet.machine(name).reachable = name != "n1"

    fleet.on_build = die

    assert stage(workshop_context(fleet, tmp_path / "shelf"), fleet) == 1

    assert [name for name in fleet.built() if name != "n1"] == ["n2", "n3"]
    assert fleet.machine("n4").built == []
    assert "4 nodes: 3 staged, 1 unreachable" in said(capsys)


def test_after_three_failures_each_builds_its_own_with_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = fleet_of(**{f"n{number}": Machine(broken="give") for number in range(1, 6)})

    assert stage(workshop_context(fleet, tmp_path / "shelf"), fleet) == 0

    assert list(fleet.built()) == ["n1", "n2", "n3", "n4", "n5"]
    output = said(capsys)
    assert "n5: to build driver 550.163.01" in output
    assert "since n1, n2, n3, n4 did not provide it" in output


def test_a_run_that_was_ended_after_the_build_goes_on_without_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = fleet_of(n1=Machine())
    stage(workshop_context(fleet, tmp_path / "one"), fleet)
    fleet.nodes |= {"n2": Machine(), "n3": Machine()}

    assert stage(workshop_context(fleet, tmp_path / "two"), fleet) == 0

    assert fleet.built() == BOTH
    of = f"driver 550.163.01 (proprietary) for kernel {KERNEL}"
    assert f"n1 has built {of}, compared with that of n2, for n3" in said(capsys)


def test_a_node_that_runs_the_driver_hands_on_its_module(tmp_path: Path) -> None:
    fleet = three()
    for name in ("n1", "n2"):
        fleet.nodes[name] = Machine(["driver"], staged="0123456789ab", modules={KERNEL: "550.163.01"})

    assert stage(workshop_context(fleet, tmp_path / "shelf"), fleet) == 0

    assert fleet.built() == {}


def test_who_claims_to_have_it_is_not_drawn_for_that(tmp_path: Path) -> None:
    fleet = three()
    alone = fleet_of(n3=fleet.machine("n3"))
    stage(workshop_context(alone, tmp_path / "one"), alone)
    fleet.nodes["n4"] = Machine()

    assert stage(workshop_context(fleet, tmp_path / "two"), fleet) == 0

    assert sorted(nodes for playbook, nodes in fleet.runs if playbook == "built_module") == [("n1",), ("n2",)]


def test_a_shelf_that_cannot_be_used_costs_builds_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    fleet = three()

    assert stage(workshop_context(fleet, tmp_path / "file" / "shelf"), fleet) == 0

    assert list(fleet.built()) == ["n1", "n2", "n3"]
    assert "built modules cannot be kept in" in said(capsys)


def test_the_plan_shows_who_builds_for_whom(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = three()
    context = workshop_context(fleet, tmp_path / "shelf")

    show_plans(context, scope(context, fleet), as_json=False, tell_changes=False)

    output = said(capsys)
    of = f"driver 550.163.01 (proprietary) for kernel {KERNEL}"
    assert f"modules: n1, n2, n3: two of them, drawn by chance, build {of}; if both come to the same" in output
    assert "the others are handed it: 2 builds instead of 3" in output
    assert fleet.built() == {}


def test_a_run_that_is_canceled_while_a_node_builds_begins_with_no_other(tmp_path: Path) -> None:
    fleet, cancel, watcher = three(), threading.Event(), Watcher()
    fleet.on_build = lambda _node: cancel.set()
    context = workshop_context(fleet, tmp_path / "shelf")
    answers = assess(context, fleet.nodes, watcher, threading.Event())

    kinds = Kinds(context, dict(answers), frozenset(fleet.nodes))
    changed = provide_modules(context, kinds, watcher, parallel=2, cancel=cancel)

    assert [one.status for one in changed.values() if isinstance(one, Failure)] == [Status.CANCELED] * 2
    assert ("n3",) not in [nodes for playbook, nodes in fleet.runs if playbook == "stage"]
    assert not any("for itself" in one.text for one in watcher.seen if isinstance(one, Note))


def test_the_plan_as_json_says_who_builds_for_whom(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = three()
    context = workshop_context(fleet, tmp_path / "shelf")

    show_plans(context, scope(context, fleet), as_json=True, tell_changes=False)

    assert json.loads(capsys.readouterr().out)["builds"] == [
        {
            "nodes": ["n1", "n2", "n3"],
            "how": "drawn",
            "version": "550.163.01",
            "flavour": "proprietary",
            "kernel": KERNEL,
            "receivers": ["n1", "n2", "n3"],
            "builds": 2,
        }
    ]
