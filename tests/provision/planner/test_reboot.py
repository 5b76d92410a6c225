"""A driver change that a reboot belongs to: planned as one, and gone on with after it."""

from __future__ import annotations

from provision.declaration.fleet.facts.driver import DriverRun, Kernel, ModuleFile
from provision.planning.driver_change import change_id
from provision.planning.node_plan import Action, Disruption
from tests.provision.samples import GPU, make_facts, make_module, make_stack, plan, replace, staged

OLD, NEW = "535.309.01", "550.163.01"
RUNNING = Kernel(release="6.12.96+deb13-amd64", running=True)
UPCOMING = Kernel(release="6.12.117+deb13-amd64", default=True, headers=True)
STACK = make_stack(driver={"version": NEW, "kernelModule": "proprietary", "companions": [], "reboot": True})
FACTS = make_facts(gpus=(GPU,), kernels=(UPCOMING, RUNNING), module=make_module(OLD, OLD))


def test_a_running_kernel_without_headers_is_left_behind_with_a_reboot() -> None:
    result = plan(staged(FACTS, STACK), STACK)

    assert result.problems == ()
    assert result.roles.driver is not None
    assert result.roles.driver.driver_change is not None
    assert result.roles.driver.driver_change.kernels == (UPCOMING.release,)
    (reload,) = (item for item in result.items if item.action is Action.RELOAD)
    assert reload.disruption is Disruption.REBOOT
    assert reload.reason.endswith(
        f"kernel {RUNNING.release} runs without headers and {UPCOMING.release} boots next: the node reboots into it"
    )


def test_what_a_reboot_is_planned_for_waits_until_it_is_staged() -> None:
    result = plan(FACTS, STACK)

    assert result.roles.driver is not None
    assert (result.roles.driver.driver_stage, result.roles.driver.driver_swap) == (True, False)
    assert all(item.deferred for item in result.items if item.disruption is Disruption.REBOOT)


def test_without_leave_to_reboot_every_kernel_needs_the_module() -> None:
    stack = make_stack(driver={"version": NEW, "kernelModule": "proprietary", "companions": []})
    driver = plan(FACTS, stack).roles.driver

    assert driver is not None
    assert driver.driver_change is not None
    assert driver.driver_change.kernels == (UPCOMING.release, RUNNING.release)


def test_a_running_kernel_that_is_not_installed_needs_the_module_too() -> None:
    driver = plan(replace(FACTS, kernels=(UPCOMING,)), STACK).roles.driver

    assert driver is not None
    assert driver.driver_change is not None
    assert driver.driver_change.kernels == (FACTS.node.kernel, UPCOMING.release)


def test_a_running_kernel_that_has_the_module_or_its_headers_is_not_left_behind() -> None:
    has_module = replace(RUNNING, modules=(ModuleFile(version=NEW, flavour="proprietary"),))
    for kernel in (has_module, replace(RUNNING, headers=True)):
        result = plan(staged(replace(FACTS, kernels=(UPCOMING, kernel)), STACK), STACK)
        assert Disruption.REBOOT not in {item.disruption for item in result.items}


def test_after_the_reboot_the_change_is_the_same() -> None:
    before = plan(FACTS, STACK).roles.driver
    booted = (replace(UPCOMING, running=True), replace(RUNNING, running=False))
    after = plan(replace(FACTS, kernels=booted), STACK).roles.driver

    assert before is not None
    assert after is not None
    assert before.driver_change_id == after.driver_change_id


def test_a_run_that_waits_for_a_reboot_is_planned_to_go_on() -> None:
    facts = staged(FACTS, STACK)
    driver = plan(facts, STACK).roles.driver
    assert driver is not None
    assert driver.driver_change is not None
    run = DriverRun(
        state="needs-reboot", verb="swap", change=change_id(driver.driver_change), step="reboot", reboot="it is in use",
        reboot_due=True,
    )  # fmt: skip

    for each, disruption, reason in (
        (run, Disruption.REBOOT, "an earlier swap waits for a reboot: it is in use"),
        (replace(run, reboot_due=False), Disruption.DRAIN, "an earlier swap goes on after the node's reboot"),
    ):
        items = plan(replace(facts, driver=replace(facts.driver, run=each)), STACK).items
        (repair,) = (item for item in items if item.action is Action.REPAIR)
        assert (repair.disruption, repair.reason) == (disruption, reason)
