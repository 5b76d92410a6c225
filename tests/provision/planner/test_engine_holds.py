"""An engine's packages are held where that is declared, and let go again by whom they were held."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.declaration.fleet.facts.driver import Unattended
from provision.declaration.fleet.facts.node import InstalledPackage, StagedEngine
from provision.planning.node_plan import Action
from tests.provision.planner.engine_nodes import knowing, rocky, stack, with_engine
from tests.provision.samples import edit_package, edit_package_manager, replace

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec
    from provision.planning.node_plan import Item, NodePlan

from tests.provision.samples import plan

CONTAINERD_IO = "containerd.io"
HOLD = stack(hold=True)


def there(declared: StackSpec, version: str = "2.2.1") -> NodeFacts:
    """Return a node with Docker's containerd, and with the package source that it came from."""
    return with_engine(knowing(rocky(), declared), version)


def held(facts: NodeFacts, *ours: str) -> NodeFacts:
    return replace(edit_package(facts, CONTAINERD_IO, hold=True), engine_holds=ours)


def holds(found: NodePlan) -> list[Item]:
    return [item for item in found.items if item.action in {Action.HOLD, Action.UNHOLD}]


def test_what_nobody_holds_is_held_and_then_nothing_is_left_to_do() -> None:
    found = plan(there(HOLD), HOLD)

    (item,) = holds(found)
    assert (item.action, item.disruption.value) == (Action.HOLD, "none")
    assert item.reason.startswith("containerd.io: not held")
    assert found.roles.runtime is not None
    assert found.roles.runtime.runtime_hold == (CONTAINERD_IO,)
    assert holds(plan(held(there(HOLD), CONTAINERD_IO), HOLD)) == []


def test_an_engine_is_held_as_it_is_installed() -> None:
    found = plan(knowing(rocky(), HOLD), HOLD)

    assert [item.action for item in found.items[:2]] == [Action.INSTALL, Action.HOLD]
    assert found.roles.runtime is not None
    assert found.roles.runtime.runtime_hold == (CONTAINERD_IO,)


def test_what_the_site_holds_stays_so_whatever_is_declared() -> None:
    for declared in (HOLD, stack()):
        found = plan(held(there(declared)), declared)
        assert holds(found) == []
        assert found.roles.runtime is None or found.roles.runtime.runtime_unhold == ()


def test_what_grapnel_held_is_let_go_when_that_is_not_declared_any_more() -> None:
    declared = stack()
    found = plan(held(there(declared), CONTAINERD_IO), declared)

    (item,) = holds(found)
    assert item.action is Action.UNHOLD
    assert found.roles.runtime is not None
    assert found.roles.runtime.runtime_unhold == (CONTAINERD_IO,)


def test_a_record_of_a_hold_that_is_gone_is_forgotten_before_somebody_else_holds_the_package() -> None:
    """A run that was killed after it had let go, or the site: what the site holds later would be let go, too."""
    declared = stack()
    facts = replace(there(declared), engine_holds=(CONTAINERD_IO, "cri-o"))

    found = plan(facts, declared)

    (item,) = holds(found)
    assert item.action is Action.UNHOLD
    assert found.roles.runtime is not None
    assert found.roles.runtime.runtime_unhold == (CONTAINERD_IO, "cri-o")
    assert plan(replace(facts, engine_holds=()), declared).is_empty == plan(there(declared), declared).is_empty


def test_a_hold_of_grapnels_does_not_keep_another_version_away_and_follows_it() -> None:
    declared = stack(hold=True, version="2.4.2")
    facts = there(declared)

    staged = StagedEngine(packages={CONTAINERD_IO: "2.4.2-3.el9"}, complete=True)
    found = plan(replace(held(facts, CONTAINERD_IO), engine_staged=staged), declared)

    assert found.problems == ()
    assert [item.action for item in found.items if item.target == CONTAINERD_IO] == [Action.UPGRADE]
    assert found.roles.runtime is not None
    assert found.roles.runtime.runtime_hold == (CONTAINERD_IO,)
    assert [each.code for each in plan(held(facts), declared).problems] == ["engine-held"]


def test_docker_is_held_with_the_containerd_that_it_runs_with() -> None:
    declared = stack(hold=True, engine="docker")
    facts = there(declared)
    docker = InstalledPackage(version="3:29.0.1-1.el9", source="docker-ce")
    engines = {"docker": replace(facts.engines["containerd"], version="29.0.1")}
    facts = replace(facts, packages={**facts.packages, "docker-ce": docker}, engines=engines)

    found = plan(facts, declared)

    (item,) = holds(found)
    assert item.reason.startswith("containerd.io, docker-ce: ")


def test_a_dnf_without_its_plugin_is_told_before_anything_is_done() -> None:
    facts = there(HOLD)
    facts = replace(facts, files={**facts.files, "/etc/dnf/plugins/versionlock.conf": None})

    (problem,) = plan(facts, HOLD).problems

    assert problem.code == "engine-hold-impossible"
    assert "dnf install python3-dnf-plugin-versionlock" in problem.hint


@pytest.mark.parametrize(
    ("manager", "active", "told"), [("dnf", True, True), ("dnf", False, False), ("apt", True, False)]
)
def test_a_node_that_restarts_its_engine_on_its_own_is_told(manager: str, *, active: bool, told: bool) -> None:
    facts = replace(there(stack()), unattended=Unattended(unit="dnf-automatic.timer", active=active))
    facts = edit_package_manager(facts, name=manager)

    def codes(facts: NodeFacts, declared: StackSpec) -> list[str]:
        return [each.code for each in plan(facts, declared).warnings]

    assert ("engine-upgraded-unattended" in codes(facts, stack())) is told
    assert "engine-upgraded-unattended" not in codes(facts, HOLD)
    assert "engine-upgraded-unattended" not in codes(held(facts), stack())


def test_an_engine_of_no_package_cannot_be_held_and_that_is_told() -> None:
    found = plan(replace(there(HOLD), packages={}), HOLD)

    assert "engine-not-held" in {each.code for each in found.warnings}
    assert holds(found) == []
