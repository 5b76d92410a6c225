"""A swap that cannot succeed as things are is refused before anything is disturbed, and the reason is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.playbooks.driver.conftest import NEW, OLD
from tests.playbooks.driver.machines import Package

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.playbooks.driver.conftest import Staged
    from tests.playbooks.driver.machines import FakeMachine


def test_a_holder_is_named_before_anything_is_disturbed(upgrade: Staged) -> None:
    machine = upgrade.machine
    machine.write("proc/4711/comm", "train\n")
    machine.write("proc/4711/cgroup", "0::/system.slice/job.service\n")
    machine.write("proc/4711/maps")
    (machine.root / "proc/4711/fd").mkdir()
    (machine.root / "proc/4711/fd/3").symlink_to("/dev/nvidia0")

    record = upgrade.run("swap")

    assert record.state == "failed"
    assert record.reason == "the driver is in use: train (pid 4711, job.service) has /dev/nvidia0 open"
    assert machine.changes() == []
    upgrade.assert_has(OLD, held=False)


def update_a_library(machine: FakeMachine) -> None:
    machine.packages["libcuda1"].version = "545.1-1"


def remove_a_library(machine: FakeMachine) -> None:
    del machine.packages["libcuda1"]


def install_a_kernel(machine: FakeMachine) -> None:
    machine.write("boot/vmlinuz-6.13.0-amd64")
    machine.write("lib/modules/6.13.0-amd64/modules.dep")


@pytest.mark.parametrize(
    ("happens", "words"),
    [
        pytest.param(
            update_a_library,
            "stale-way-back: packages were changed after the change was staged: "
            "libcuda1 (535.309.01-2 then, 545.1-1 now) (stage the change again)",
            id="a package was updated",
        ),
        pytest.param(
            remove_a_library,
            "stale-way-back: packages were changed after the change was staged: "
            "libcuda1 (535.309.01-2 then, not installed now) (stage the change again)",
            id="a package was removed",
        ),
        pytest.param(
            install_a_kernel,
            "kernel-not-staged: the kernel 6.13.0-amd64 was installed after the change was staged, "
            "which has no module for it (plan again: the new plan names that kernel, and is staged with a module for "
            "it)",
            id="a kernel was installed",
        ),
    ],
)
def test_a_set_that_no_longer_fits_the_node_is_refused_before_anything_is_disturbed(
    upgrade: Staged, happens: Callable[[FakeMachine], None], words: str
) -> None:
    happens(upgrade.machine)
    upgrade.machine.show()

    record = upgrade.run("swap")

    assert (record.state, record.reason) == ("failed", words)
    assert upgrade.machine.changes() == []


@pytest.mark.parametrize("happens", [update_a_library, remove_a_library, install_a_kernel])
def test_what_was_swapped_in_is_put_right_from_its_own_set(
    upgrade: Staged, happens: Callable[[FakeMachine], None]
) -> None:
    upgrade.run("swap")
    happens(upgrade.machine)
    upgrade.machine.show()

    record = upgrade.run("swap")

    assert record.state == "done", record.reason
    upgrade.assert_has(NEW, held=True)


def test_a_transaction_that_would_take_more_away_is_refused(upgrade: Staged) -> None:
    upgrade.machine.packages["cuda-samples"] = Package("12")
    upgrade.machine.extra_removals = {"cuda-samples"}
    upgrade.machine.show()

    record = upgrade.run("swap")

    assert record.state == "failed"
    assert record.reason == "packages would be removed that the change does not name: cuda-samples"
