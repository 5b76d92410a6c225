"""Libraries and kernel module of one version, or nothing is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.declaration.fleet.facts.driver import DriverState
from provision.declaration.fleet.facts.node import DeviceHolder
from provision.planning.driver_change import ModuleTarget
from provision.planning.node_plan import Action, Disruption, Role, Roles
from provision.planning.planner.drivers.kernel_module import RELOAD_MARK, TARGET
from tests.provision.samples import (
    GPU,
    configured,
    edit_file,
    edit_package_manager,
    make_facts,
    make_module,
    make_stack,
    plan,
    replace,
    simulate_apply,
    staged,
    steps,
)

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.planning.node_plan import Item

OLD, NEW = "535.309.01", "550.163.01"
NEW_STACK = make_stack(driver={"version": NEW})
DAEMON = ("restart", "grapnel-node.service")
TRAIN = DeviceHolder(pid=4711, command="train", devices=("/dev/nvidia0",))


def node(loaded: str | None, on_disk: str | None, *, packages: str = OLD, gpus: int = 1) -> NodeFacts:
    """Return a node that works with a driver, and whose module is at these versions."""
    facts = configured(make_stack(driver={"version": packages}))
    facts = replace(facts, driver=DriverState(), installed={**facts.installed, "driver": None})
    return replace(facts, module=make_module(loaded, on_disk), gpus=(GPU,) * gpus)


def module_items(facts: NodeFacts) -> list[Item]:
    result = plan(facts, NEW_STACK)
    assert result.problems == ()
    return [item for item in result.items if item.target == TARGET]


def test_an_upgrade_exchanges_packages_then_the_module_then_restarts_the_daemon_once() -> None:
    facts = staged(node(OLD, NEW), NEW_STACK)
    result = plan(facts, NEW_STACK)

    kinds = [item.action for item in result.items]
    assert kinds[0] is Action.WRITE
    assert set(kinds[1:-2]) == {Action.UPGRADE}
    assert steps(result.items)[-2:] == [("reload", TARGET), DAEMON]
    assert {item.disruption for item in result.items[1:-1]} == {Disruption.DRAIN}
    reload = result.items[-2]
    assert (reload.role, reload.from_, reload.to) == (Role.DRIVER, OLD, NEW)
    assert "the loaded kernel module is 535.309.01" in reload.reason
    assert result.roles.driver is not None
    assert (result.roles.driver.driver_stage, result.roles.driver.driver_swap) == (False, True)
    assert result.roles.driver.driver_change is not None
    assert result.roles.driver.driver_change.module == ModuleTarget(version=NEW)
    assert plan(simulate_apply(facts, result), NEW_STACK).is_empty


def test_a_driver_is_staged_before_the_gpus_are_taken_out_of_service() -> None:
    facts = node(OLD, NEW)

    result = plan(facts, NEW_STACK)
    after = plan(staged(facts, NEW_STACK), NEW_STACK)

    assert steps(result.items)[:2] == [("deploy", "driver"), ("stage", "driver 550.163.01")]
    assert {item.deferred for item in result.items[2:]} == {True}
    assert result.roles.driver is not None
    assert (result.roles.driver.driver_stage, result.roles.driver.driver_swap) == (True, False)
    assert DAEMON not in steps(result.items)
    assert {item.deferred for item in after.items} == {False}


def test_what_was_staged_for_another_version_is_not_used() -> None:
    facts = staged(node(OLD, NEW), NEW_STACK)

    result = plan(replace(facts, module=make_module(OLD, OLD)), make_stack(driver={"version": OLD, "hold": False}))

    assert ("stage", f"driver {OLD}") in steps(result.items)


def test_a_node_that_nobody_has_given_a_module_yet_gets_the_libraries_alone() -> None:
    facts = staged(replace(make_facts(), module=make_module(None, None), gpus=(GPU,)), NEW_STACK)

    result = plan(facts, NEW_STACK)

    assert result.roles.driver is not None
    assert result.roles.driver.driver_change is not None
    assert result.roles.driver.driver_change.module is None
    assert TARGET not in {item.target for item in result.items}
    provided = replace(simulate_apply(facts, result), module=make_module(None, NEW))
    assert ("load", TARGET) in steps(plan(provided, NEW_STACK).items)


def test_holds_come_after_the_module() -> None:
    facts = replace(make_facts(), module=make_module(OLD, NEW), gpus=(GPU,))

    order = [item.target for item in plan(facts, NEW_STACK).items if item.role is Role.DRIVER]

    assert order[-2:] == [TARGET, "driver packages"]


def test_who_holds_a_gpu_is_in_the_reload_s_reason() -> None:
    (item,) = module_items(replace(node(OLD, NEW), device_holders=(TRAIN,)))

    assert item.reason.endswith("; a GPU is held by train (pid 4711)")


def test_a_run_that_was_killed_before_the_reload_goes_on_with_it() -> None:
    facts = staged(node(OLD, NEW, packages=NEW), NEW_STACK)

    assert steps(plan(facts, NEW_STACK).items) == [("reload", TARGET), DAEMON]
    assert plan(facts, NEW_STACK).disruption is Disruption.DRAIN


def test_a_run_that_was_killed_between_unload_and_load_goes_on_with_the_load() -> None:
    facts = staged(node(None, NEW, packages=NEW), NEW_STACK)

    result = plan(facts, NEW_STACK)

    assert steps(result.items) == [("load", TARGET)]
    assert result.disruption is Disruption.NONE
    assert result.roles.driver is not None
    assert result.roles.driver.driver_swap
    assert plan(simulate_apply(facts, result), NEW_STACK).is_empty


def test_a_run_that_was_killed_after_the_load_starts_what_it_had_stopped() -> None:
    facts = edit_file(node(NEW, NEW, packages=NEW), RELOAD_MARK, "{}")
    facts = staged(facts, NEW_STACK)

    result = plan(facts, NEW_STACK)

    assert steps(result.items) == [("load", TARGET)]
    assert result.disruption is Disruption.NONE
    assert plan(simulate_apply(facts, result), NEW_STACK).is_empty


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loaded", "on_disk", "gpus"),
    [(NEW, NEW, 1), (NEW, None, 1), (NEW, OLD, 1), (None, None, 1), (None, None, 0), (None, NEW, 0), (None, OLD, 0)],
    ids=[
        "loaded and on disk",
        "loaded from elsewhere",
        "another version prepared on disk",
        "no module at all",
        "no module and no GPU",
        "a module for no GPU",
        "another module for no GPU",
    ],
)
def test_the_module_is_left_alone(loaded: str | None, on_disk: str | None, gpus: int) -> None:
    assert module_items(node(loaded, on_disk, packages=NEW, gpus=gpus)) == []
    assert plan(node(loaded, on_disk, packages=NEW, gpus=gpus), NEW_STACK).is_empty


WRONG = {
    "neither loaded nor on disk": (OLD, OLD, "n1 has 535.309.01 on disk, and 535.309.01 loaded"),
    "loaded of another version and gone from disk": (OLD, None, "n1 has none on disk, and 535.309.01 loaded"),
    "on disk of another version": (None, OLD, "n1 has 535.309.01 on disk, and none loaded"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("loaded", "on_disk", "found"), WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("packages", [OLD, NEW])
def test_a_node_that_would_end_with_two_versions_is_refused_as_a_whole(
    packages: str, loaded: str | None, on_disk: str | None, found: str
) -> None:
    result = plan(node(loaded, on_disk, packages=packages), NEW_STACK)

    assert [(each.code, each.message) for each in result.problems] == [
        ("module-not-on-disk", f"driver 550.163.01 needs kernel module 550.163.01: {found}")
    ]
    assert "install 550.163.01 for kernel 6.12.107+deb13-amd64 first" in result.problems[0].hint
    assert "or declare driver.version: 535.309.01" in result.problems[0].hint
    assert TARGET not in {item.target for item in result.items}
    assert ("upgrade" in {item.action for item in result.items}) == (packages == OLD)  # shown all the same
    assert result.roles == Roles()


def test_a_loaded_module_without_a_version_is_exchanged_too() -> None:
    facts = node(OLD, NEW)
    facts = replace(facts, module=replace(facts.module, version=None))

    (item,) = module_items(facts)

    assert "of an unknown version" in item.reason


def test_another_revision_of_the_loaded_driver_drains_and_needs_no_reload() -> None:
    facts = node(NEW, NEW, packages=NEW)
    libcuda = replace(facts.packages["libcuda1"], version="550.163.01-1")
    facts = staged(replace(facts, packages=facts.packages | {"libcuda1": libcuda}), NEW_STACK)

    result = plan(facts, NEW_STACK)

    assert steps(result.items) == [("upgrade", "libcuda1"), DAEMON]
    assert result.disruption is Disruption.DRAIN


def test_an_interrupted_dpkg_is_mended_before_the_module() -> None:
    facts = staged(edit_package_manager(node(OLD, NEW, packages=NEW), interrupted=True), NEW_STACK)

    assert steps(plan(facts, NEW_STACK).items) == [("repair", "dpkg"), ("reload", TARGET), DAEMON]


def test_a_driver_that_is_not_managed_keeps_its_module() -> None:
    facts = replace(node(OLD, NEW), module=make_module(OLD, None))

    assert plan(facts, make_stack(driver={"enabled": False})).problems == ()
