"""Which version of an engine is installed, and what stands in the way of an exchange of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.apply.gate import needs_staging, will_need_drain
from provision.declaration.fleet.facts.node import StagedEngine
from provision.planning.node_plan import Disruption
from provision.planning.render.package_source import rpm_key_path
from tests.provision.planner.engine_nodes import (
    ALONE,
    REPO,
    knowing,
    only_problem,
    rocky,
    shown,
    stack,
    with_engine,
    with_staged,
)
from tests.provision.samples import (
    edit_package,
    make_facts,
    make_stack,
    plan,
    replace,
)

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.planning.node_plan import NodePlan


def test_the_newest_package_of_a_declared_version_is_installed() -> None:
    declared = stack(version="2.4.2")

    found = plan(knowing(rocky(), declared), declared)

    assert shown(found)[0] == ("install", "containerd.io", "2.4.2-3.el9", False)
    assert found.roles.runtime is not None
    assert found.roles.runtime.runtime_versions == {"containerd.io": "2.4.2-3.el9"}


@pytest.mark.parametrize("is_there", [False, True])
def test_a_version_that_no_source_has_is_told_with_those_that_it_has(is_there: bool) -> None:  # noqa: FBT001
    declared = stack(version="2.9.0")
    facts = knowing(rocky(), declared)

    problem = only_problem(plan(with_engine(facts, "2.2.1") if is_there else facts, declared))

    assert problem.code == "engine-version-not-available"
    assert problem.message == "no package source of n1 has containerd.io 2.9.0: they have 2.2.1, 2.4.2"


@pytest.mark.parametrize(
    ("there", "declared", "action", "to"),
    [("2.2.1", "2.4.2", "upgrade", "2.4.2-3.el9"), ("2.4.2", "2.2.1", "downgrade", "2.2.1-1.el9")],
)
def test_an_engine_of_another_version_is_exchanged_out_of_service(
    there: str, declared: str, action: str, to: str
) -> None:
    wanted = stack(version=declared)
    facts = with_engine(knowing(rocky(), wanted), there)

    found = plan(with_staged(facts, to), wanted)

    (change,) = [item for item in found.items if item.target == "containerd.io"]
    assert (change.action.value, change.from_, change.to, change.deferred) == (action, f"{there}-1.el9", to, False)
    assert found.disruption.value == "drain"
    assert found.roles.runtime is not None
    assert found.roles.runtime.runtime_service == "containerd.service"


@pytest.mark.parametrize(
    "lies",
    [
        pytest.param(None, id="nothing lies ready"),
        pytest.param(StagedEngine(packages={"containerd.io": "2.4.2-1.el9"}, complete=True), id="a former revision"),
        pytest.param(StagedEngine(packages={"containerd.io": "2.4.2-3.el9"}), id="not as it was staged"),
    ],
)
def test_its_packages_lie_ready_before_the_node_leaves_service(lies: StagedEngine | None) -> None:
    wanted = stack(version="2.4.2")
    facts = replace(with_engine(knowing(rocky(), wanted), "2.2.1"), engine_staged=lies)

    found = plan(facts, wanted)

    assert [row for row in shown(found) if row[1] == "containerd.io"] == [
        ("stage", "containerd.io", "2.4.2-3.el9", False),
        ("upgrade", "containerd.io", "2.4.2-3.el9", True),
    ]
    assert found.roles.runtime is not None
    assert found.roles.runtime.runtime_stage == {"containerd.io": "2.4.2-3.el9"}
    assert found.roles.runtime.runtime_packages == ()
    assert needs_staging(found)
    assert not needs_staging(plan(with_staged(facts, "2.4.2-3.el9"), wanted))


def test_what_lies_ready_is_exchanged_where_no_source_answers() -> None:
    wanted = stack(version="2.4.2")
    facts = with_staged(with_engine(knowing(rocky(), wanted), "2.2.1"), "2.4.2-3.el9")

    found = plan(replace(facts, available={}), wanted)

    assert found.roles.runtime is not None
    assert found.roles.runtime.runtime_versions == {"containerd.io": "2.4.2-3.el9"}
    assert found.roles.runtime.runtime_stage is None


@pytest.mark.parametrize("complete", [True, False], ids=["not declared any more", "of a killed run"])
def test_what_lies_ready_for_nothing_goes(complete: bool) -> None:  # noqa: FBT001
    wanted = stack(version="2.2.1")
    facts = with_staged(with_engine(knowing(rocky(), wanted), "2.2.1"), "2.4.2-3.el9", complete=complete)

    found = plan(facts, wanted)

    assert ("remove", "staged engine packages", None, False) in shown(found)
    assert found.roles.runtime is not None
    assert found.roles.runtime.runtime_stage == {}
    assert not needs_staging(found)
    assert found.disruption is not Disruption.DRAIN


@pytest.mark.parametrize(
    "declared",
    [
        pytest.param({"source": "distribution", "repository": None}, id="another source"),
        pytest.param({"install": False}, id="the engine is the site's own"),
    ],
)
def test_what_lies_ready_goes_also_where_the_engine_is_of_another_source_now(declared: dict[str, object]) -> None:
    facts = with_staged(with_engine(rocky(), "2.2.1"), "2.4.2-3.el9")

    found = plan(facts, stack(**declared))

    assert ("remove", "staged engine packages", None, False) in shown(found)
    assert found.roles.runtime is not None
    assert found.roles.runtime.runtime_stage == {}
    assert found.roles.runtime.runtime_service == "containerd.service"
    again = plan(replace(facts, engine_staged=None), stack(**declared))
    assert "staged engine packages" not in {item.target for item in again.items}


def test_an_exchange_that_waits_for_the_package_source_is_in_the_plan_from_the_beginning() -> None:
    """Else the node would serve as its source is written, and the apply end with what takes it out of service."""
    wanted = stack(version="2.4.2")
    facts = with_engine(rocky(), "2.2.1")

    first = plan(facts, wanted)

    (change,) = [item for item in first.items if item.target == "containerd.io"]
    assert (change.action.value, change.to, change.deferred) == ("upgrade", None, True)
    assert will_need_drain(first)
    assert first.roles.runtime is not None
    assert first.roles.runtime.runtime_packages == ()
    assert needs_staging(first)
    assert first.roles.runtime.runtime_stage == {}
    assert [file.path for file in first.roles.runtime.runtime_sources] == [rpm_key_path("docker"), REPO]


def test_an_engine_that_somebody_holds_is_not_exchanged() -> None:
    wanted = stack(version="2.4.2")
    facts = edit_package(with_engine(knowing(rocky(), wanted), "2.2.1"), "containerd.io", hold=True)

    problem = only_problem(plan(facts, wanted))

    assert problem.code == "engine-held"
    assert "dnf versionlock delete containerd.io" in problem.hint
    assert plan(facts, stack(version="2.2.1")).problems == ()


def test_another_revision_of_the_declared_version_is_left_alone() -> None:
    wanted = stack(version="2.4.2")
    facts = with_engine(knowing(rocky(), wanted), "2.4.2")

    assert "containerd.io" not in {item.target for item in plan(facts, wanted).items}


def test_an_engine_of_another_source_stays_and_is_told() -> None:
    facts = with_engine(rocky(), "2.2.1", package="containerd")

    found, refused = plan(facts, stack()), plan(facts, stack(version="2.4.2"))

    assert [each.code for each in found.warnings] == ["engine-of-another-source"]
    assert REPO not in {item.target for item in found.items}
    assert only_problem(refused).code == "engine-of-another-source"


@pytest.mark.parametrize(
    ("facts", "has"),
    [
        pytest.param(with_engine(make_facts(), "2.2.1"), "containerd.io", id="of a source that was not declared"),
        pytest.param(
            replace(with_engine(make_facts(), "2.2.1"), packages={}),
            "containerd 2.2.1 of no known package (/usr/bin/containerd)",
            id="of no package",
        ),
        pytest.param(with_engine(rocky(), "2.2.1"), "containerd.io", id="of a system that has none"),
    ],
)
def test_a_version_that_cannot_be_brought_is_told_and_one_that_is_there_is_no_matter(
    facts: NodeFacts, has: str
) -> None:
    """Nothing of a plan is left undone without a word."""

    def planned(version: str) -> NodePlan:
        return plan(facts, make_stack(**ALONE, runtime={"entitlement": "env", "version": version}))

    problem = only_problem(planned("2.4.2"))
    assert problem.code == "engine-of-another-source"
    assert f"n1 has {has}, and runtime.source distribution has " in problem.message
    assert planned("2.2.1").problems == ()
    assert planned("2.2.1").roles.runtime is not None
