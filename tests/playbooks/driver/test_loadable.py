"""A module that the running kernel could not load is told before anything is disturbed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.change import PackageVersion
from ansible_collections.grapnel.node.plugins.module_utils.driver.judge.trust import Signer, write_signers
from ansible_collections.grapnel.node.plugins.module_utils.driver.record import seal, store

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


def enforce(machine: FakeMachine, *certificates: str) -> None:
    """Let the kernel accept modules only of certificates, as /proc/keys lists them."""
    machine.write("sys/kernel/security/lockdown", "none [integrity] confidentiality\n")
    lines = (
        f"0a1b2c3d I------     1 perm 1f030000     0     0 asymmetri {one}: X509.rsa x []\n" for one in certificates
    )
    machine.write("proc/keys", "".join(lines))


@pytest.mark.parametrize(
    ("signer", "code"),
    [
        (
            Signer("Operations", "0a1b"),
            "signing-key-not-enrolled: the kernel accepts signed modules only, and does not",
        ),
        (Signer(""), "module-unsigned: the kernel accepts signed modules only, and the driver's are not signed"),
    ],
)
def test_a_module_that_the_kernel_would_refuse_is_not_swapped_in(upgrade: Staged, signer: Signer, code: str) -> None:
    host, folder = upgrade.machine.host(), store.staged_folder(upgrade.id)
    write_signers(host, folder, {KERNEL: [signer]})
    seal.seal(host, folder)
    enforce(upgrade.machine, "Debian Secure Boot CA: 6ccece7e", "Operations: ffff")

    refused = upgrade.run("swap")
    assert refused.state == "failed"
    assert refused.reason.startswith(code)
    assert upgrade.machine.changes() == []
    upgrade.assert_has(OLD, held=False)

    enforce(upgrade.machine, "Operations: 0a1b") if signer.name else upgrade.machine.write(
        "sys/kernel/security/lockdown"
    )
    assert upgrade.run("swap").state == "done"
    upgrade.assert_has(NEW, held=True)


def test_a_module_of_somebody_else_s_is_held_to_the_kernel_s_certificates_too(provided: Staged) -> None:
    provided.machine.on_disk = {KERNEL: (NEW, "proprietary")}
    enforce(provided.machine, "Debian Secure Boot CA: 6ccece7e")

    record = provided.run("swap")

    assert record.state == "failed"
    assert record.reason.startswith("module-unsigned: ")
    assert provided.machine.changes() == []
