"""Every kernel gets the module that was built for it, and nothing is compiled out of service."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.change import PackageVersion

from tests.playbooks.driver.conftest import NEW, OLD, make_change, put_driver, stage
from tests.playbooks.driver.machines import DKMS, KERNEL, OTHER_KERNEL

if TYPE_CHECKING:
    from tests.playbooks.driver.conftest import Staged
    from tests.playbooks.driver.machines import FakeMachine


def test_nothing_is_compiled_out_of_service(fake: FakeMachine) -> None:
    put_driver(fake, OLD)
    change = make_change(NEW, kernels=(KERNEL, OTHER_KERNEL))
    staged = stage(fake, change, make_change(OLD, files=(), services=()))
    (fake.root / f"var/lib/grapnel/driver/staged/{staged.id}/modules/{OTHER_KERNEL}.tar.gz").unlink()
    reseal(staged)

    record = staged.run("swap")

    assert record.state == "failed"
    assert f"no prebuilt module for kernel {OTHER_KERNEL}" in record.reason
    assert fake.changes() == []


def reseal(staged: Staged) -> None:
    from ansible_collections.grapnel.node.plugins.module_utils.driver.record import seal, store  # noqa: PLC0415

    seal.seal(staged.machine.host(), store.staged_folder(staged.id))


@pytest.mark.parametrize("scripts_call_dkms", [False, True], ids=["Debian's scripts", "those of RPM packages"])
def test_every_kernel_gets_its_prebuilt_module(fake: FakeMachine, *, scripts_call_dkms: bool) -> None:
    put_driver(fake, OLD)
    fake.scripts_call_dkms = scripts_call_dkms
    fake.write("/etc/dkms/nvidia.conf", "SIGN=1\n")
    change = make_change(NEW, kernels=(KERNEL, OTHER_KERNEL))
    staged = stage(fake, change, make_change(OLD, files=(), services=()))

    assert staged.run("swap").state == "done"

    assert fake.on_disk == {KERNEL: (NEW, "proprietary"), OTHER_KERNEL: (NEW, "proprietary")}
    assert fake.compiled == []
    assert [path.name for path in (fake.root / "etc/dkms").iterdir()] == ["nvidia.conf"]


def test_the_former_module_is_withdrawn_without_indexing_all_modules_twice(upgrade: Staged) -> None:
    upgrade.machine.write(f"/var/lib/dkms/{DKMS}/{OLD}/source")
    upgrade.machine.write(f"/var/lib/dkms/{DKMS}/original_module/x")

    record = upgrade.run("swap")

    assert record.state == "done", record
    assert upgrade.machine.withdrawn == [OLD]
    upgrade.assert_has(NEW, held=True)


def test_where_compiling_is_allowed_a_missing_module_is_compiled(fake: FakeMachine) -> None:
    put_driver(fake, OLD)
    change = make_change(NEW, compile="anywhere")
    staged = stage(fake, change, make_change(OLD, files=(), services=()))
    (fake.root / f"var/lib/grapnel/driver/staged/{staged.id}/modules/{KERNEL}.tar.gz").unlink()
    reseal(staged)

    assert staged.run("swap").state == "done"
    assert NEW in fake.compiled


def test_the_flavour_alone_is_a_reason_to_exchange_the_module(fake: FakeMachine) -> None:
    put_driver(fake, NEW)
    fake.packages["nvidia-kernel-dkms"].version = f"{NEW}-1"
    fake.show()
    former = make_change(NEW, files=(), services=(), packages=(PackageVersion("nvidia-kernel-dkms", f"{NEW}-1"),))
    staged = stage(fake, make_change(NEW, flavour="open"), former)

    record = staged.run("swap")

    assert record.state == "done", record.reason
    assert fake.flavour_loaded == "open"
    assert "rmmod nvidia" in fake.calls
    assert fake.on_disk == {KERNEL: (NEW, "open")}


def test_a_module_that_cannot_be_read_in_time_is_told_as_that(upgrade: Staged) -> None:
    upgrade.machine.slow_modinfo = True

    record = upgrade.run("swap")

    assert record.state == "quarantined"
    assert re.match("packages: `modinfo .*` took longer than .* s: try again", record.reason)
    assert "lacks the module" not in record.reason

    upgrade.machine.slow_modinfo = False
    assert upgrade.run("swap").state == "done"
    upgrade.assert_has(NEW, held=True)
