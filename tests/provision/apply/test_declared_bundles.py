"""Nodes that declare a bundle are served from it, each from its own; what is wrong with one is its nodes' problem."""

from __future__ import annotations

import shutil
import subprocess
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest

from provision.apply.converge import assess, stage
from provision.apply.declarations import Declarations
from provision.apply.model import Assessment, Failure
from provision.apply.playbooks import Playbooks
from provision.apply.supply.supply import Bundles
from provision.planning.node_plan import NodePlan
from provision.planning.supply.bundle.errors import BundleError
from provision.planning.supply.bundle.read import open_place
from provision.planning.supply.bundle.sets import Contents
from provision.planning.supply.bundle.write import write_bundle
from tests.provision.apply.fakes import COLLECTION, FakeFleet, FakeNode, Watcher, context
from tests.provision.apply.test_bundled import node_on, plan_of
from tests.provision.bundle.test_bundle import DEBIAN, KERNEL, NEW, change_of, staged_set
from tests.provision.samples import make_stack

if TYPE_CHECKING:
    from pathlib import Path

    from provision.apply.context import ApplyContext
    from provision.declaration.spec.model import StackSpec

OLD = "535.309.01"


def write(folder: Path, version: str) -> Path:
    """A bundle with one driver for Debian 13."""
    folder.mkdir(parents=True)
    contents = Contents()
    contents.add_set(staged_set(folder / "set", change_of(version, kernels=(KERNEL,))))
    write_bundle(folder / "drivers.bundle", contents.sources, contents.listing("0.2.0"))
    return folder / "drivers.bundle"


def declaring(place: Path | None, **more: object) -> StackSpec:
    keys: dict[str, object] = {"version": NEW, **more}
    if place is not None:
        keys |= {"source": "bundle", "repository": {"folder": str(place)}}
    return make_stack(driver=keys)


def serving(folder: Path, fleet: FakeFleet | None = None, **stacks: StackSpec) -> ApplyContext:
    made = context(fleet or FakeFleet({}), lambda node, _facts: NodePlan(node=node))
    return replace(made, declarations=Declarations(stacks), bundles=Bundles(folder / "cache"))


def of(node: str, version: str = NEW) -> NodePlan:
    return msgspec.structs.replace(plan_of(change_of(version)), node=node)


def test_each_node_is_planned_and_staged_from_its_own_bundle(tmp_path: Path) -> None:
    newer, older = write(tmp_path / "a", NEW), write(tmp_path / "b", OLD)
    fleet = FakeFleet({name: FakeNode() for name in ("n1", "n2", "n3")})
    made = serving(tmp_path, fleet, n1=declaring(newer), n2=declaring(older), n3=declaring(None))

    for node, version in {"n1": NEW, "n2": OLD, "n3": NEW}.items():
        known = made.known(node, node_on())
        assert "libcuda1" not in known.available if node == "n3" else known.available["libcuda1"]
        stage(made, node, Assessment(known, of(node, version)), Watcher(), threading.Event())

    handed = [request.extra_vars.get("grapnel_handover", []) for request in fleet.requests]
    files = [[one["place"] for one in files] for files in handed]  # type: ignore[attr-defined]  # a list of files
    assert [f"packages/libcuda1_{NEW}-2_amd64.deb" in files[0], f"packages/libcuda1_{OLD}-2_amd64.deb" in files[1]] == [
        True,
        True,
    ]
    assert files[2] == []


def test_a_bundle_on_the_command_line_stands_above_the_declared_one(tmp_path: Path) -> None:
    newer, older = write(tmp_path / "a", NEW), write(tmp_path / "b", OLD)
    made = serving(tmp_path, n1=declaring(older))
    made = replace(made, bundle=open_place(newer, tmp_path / "cache"))

    (offered,) = made.known("n1", node_on()).available["libcuda1"]

    assert offered.version == f"{NEW}-2"


def missing(folder: Path) -> Path:
    return folder / "away.bundle"


def cut(folder: Path) -> Path:
    archive = write(folder / "a", NEW)
    archive.write_bytes(archive.read_bytes()[: archive.read_bytes().rindex(b"libpci3_1%3a3")])
    return archive


def without_a_list(folder: Path) -> Path:
    (folder / "empty").mkdir()
    return folder / "empty"


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (missing, "away.bundle: no such file or directory"),
        (cut, "drivers.bundle is cut: "),
        (without_a_list, "is not an unpacked bundle: it has no list.json"),
    ],
)
def test_a_bundle_that_cannot_be_read_is_the_problem_of_its_nodes_alone(
    tmp_path: Path, broken: object, words: str
) -> None:
    place = broken(tmp_path)  # type: ignore[operator]  # one of the functions above
    fleet = FakeFleet({"n1": FakeNode(), "n2": FakeNode()})
    made = serving(tmp_path, fleet, n1=declaring(place), n2=declaring(None))

    answers = assess(made, ["n1", "n2"], Watcher(), threading.Event())

    first, second = answers["n1"], answers["n2"]
    assert not isinstance(first, Failure)
    assert not isinstance(second, Failure)
    (problem,) = first.plan.problems
    assert problem.code == "bundle-not-usable"
    assert words in problem.message
    assert problem.hint
    assert second.plan.problems == ()


def test_a_branch_of_a_bundle_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    """And not that a version is missing, which nobody knows."""
    fleet = FakeFleet({"n1": FakeNode()})
    made = serving(tmp_path, fleet, n1=declaring(missing(tmp_path), version=None, branch="550"))

    answer = assess(made, ["n1"], Watcher(), threading.Event())["n1"]

    assert not isinstance(answer, Failure)
    assert [one.code for one in answer.plan.problems] == ["bundle-not-usable"]


def test_what_the_bundle_lacks_is_told_before_anything_is_sent(tmp_path: Path) -> None:
    made = serving(tmp_path, n1=declaring(write(tmp_path / "a", NEW)))

    (problem,) = made.judged(of("n1", OLD), node_on()).problems
    (elsewhere,) = made.judged(of("n1"), node_on("12")).problems

    assert f"the bundle has no driver {OLD} (proprietary) for {DEBIAN}; it has {NEW}" in problem.message
    assert f"the bundle has no driver {NEW} (proprietary) for debian-12" in elsewhere.message


def unpacked(folder: Path) -> Path:
    archive, place = write(folder / "a", NEW), folder / "unpacked"
    place.mkdir()
    subprocess.run(["tar", "-xf", str(archive), "-C", str(place)], check=True)
    return place


def test_a_folder_that_a_bundle_was_unpacked_into_is_as_good(tmp_path: Path) -> None:
    place = unpacked(tmp_path)
    made = serving(tmp_path, n1=declaring(place))

    handover = made.handover(Assessment(node_on(), of("n1")))

    assert handover is not None
    assert handover.is_complete
    assert {file.source.is_relative_to(place) for file in handover.files} == {True}


@pytest.mark.parametrize("how", ["changed", "link"])
def test_a_folder_is_checked_as_an_archive_is(tmp_path: Path, how: str) -> None:
    place = unpacked(tmp_path)
    package = next(place.rglob("libcuda1_*"))
    if how == "link":
        shutil.move(package, tmp_path / "elsewhere")
        package.symlink_to(tmp_path / "elsewhere")
    else:
        package.write_bytes(b"something else")

    with pytest.raises(BundleError, match="is a link" if how == "link" else "is not as the bundle's list says") as said:
        Bundles(tmp_path / "cache").open(place)
    assert "remove" not in said.value.hint, "the folder is not grapnel's"


def test_a_bundle_is_read_once_for_all_nodes(tmp_path: Path) -> None:
    archive = write(tmp_path / "a", NEW)
    bundles = Bundles(tmp_path / "cache")
    first = bundles.open(archive)
    archive.unlink()

    assert bundles.open(archive) is first


def test_nobody_plans_such_a_node_from_its_own_package_sources(tmp_path: Path) -> None:
    """Whoever makes no bundles available gets a problem, and no plan."""
    made = replace(serving(tmp_path, n1=declaring(tmp_path)), bundles=None)

    judged = made.judged(of("n1"), node_on())

    assert [one.code for one in judged.problems] == ["bundle-not-usable"]
    assert judged.roles.driver is None


def test_package_sources_are_not_contacted_on_nodes_that_have_a_bundle() -> None:
    playbooks = Playbooks(collection=COLLECTION, offline_nodes=frozenset({"n1"}))

    def asked(*nodes: str) -> object:
        return playbooks.facts(nodes).extra_vars

    assert asked("n1", "n2") == {"grapnel_offline_nodes": ["n1"]}
    assert asked("n1") == {"grapnel_is_offline": True}
    assert asked("n2") == {}
    assert playbooks.stage(of("n1")).extra_vars["grapnel_is_offline"]
    assert "grapnel_is_offline" not in playbooks.apply(of("n2")).extra_vars
