"""A module that the running kernel could not load is told before anything is disturbed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.change import PackageVersion

from tests.playbooks.driver.conftest import NEW, OLD, Staged, make_change, put_driver, stage
from tests.playbooks.driver.machines import KERNEL, OTHER_KERNEL, FakeMachine

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.driver.change import DriverChange


def user_space(version: str) -> DriverChange:
    """A change whose module somebody else puts on the disk."""
    packages = tuple(PackageVersion(name, f"{version}-2") for name in ("libcuda1", "nvidia-persistenced"))
    return make_change(version, flavour="none", packages=packages, kernels=(), dkms=None, files=())


@pytest.fixture
def provided(fake: FakeMachine) -> Staged:
    """A node whose module somebody else provides, and has not changed yet."""
    put_driver(fake, OLD)
    del fake.packages["nvidia-kernel-dkms"]
    return stage(fake, user_space(NEW), user_space(OLD))


def test_a_node_that_was_booted_into_a_kernel_without_a_staged_module_is_refused(fake: FakeMachine) -> None:
    put_driver(fake, OLD)
    fake.write(f"boot/vmlinuz-{OTHER_KERNEL}")
    staged = stage(fake, make_change(NEW, kernels=(OTHER_KERNEL,)), make_change(OLD, files=(), services=()))

    record = staged.run("swap")

    assert record.state == "failed"
    assert record.reason == (
        f"kernel {KERNEL} runs, and the module is for {OTHER_KERNEL}; "
        "only a reboot helps, and the declaration does not allow one: declare driver.reboot: true"
    )
    assert fake.changes() == []
    staged.assert_has(OLD, held=False)


def test_a_module_that_nobody_has_put_on_the_disk_is_refused(provided: Staged) -> None:
    record = provided.run("swap")

    assert record.state == "failed"
    assert record.reason == (
        f"module-not-on-disk: kernel module {NEW} is to be loaded, and {OLD} is on disk: driver.kernelModule is none, "
        "so whatever provides the module has to put it there first"
    )
    assert provided.machine.changes() == []


def test_a_module_that_is_loaded_already_need_not_be_on_the_disk(provided: Staged) -> None:
    machine = provided.machine
    machine.on_disk = {KERNEL: (NEW, "proprietary")}
    assert provided.run("swap").state == "done"
    machine.on_disk = {}
    machine.packages["libcuda1"].held = False
    machine.show()

    record = provided.run("swap")

    assert (record.state, record.changed) == ("done", True), record.reason
