"""A module that something else than grapnel provides: the driver's packages are swapped around it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.change import PackageVersion

from tests.playbooks.driver.conftest import NEW, OLD, make_change, put_driver, stage
from tests.playbooks.driver.machines import KERNEL

if TYPE_CHECKING:
    from tests.playbooks.driver.conftest import Staged
    from tests.playbooks.driver.machines import FakeMachine


@pytest.fixture
def provided(fake: FakeMachine) -> Staged:
    """A node whose module something else provides, which has put the new one on the disk; its driver is staged."""
    put_driver(fake, OLD)
    del fake.packages["nvidia-kernel-dkms"]
    fake.on_disk[KERNEL] = (NEW, "proprietary")
    new, old = (
        make_change(
            version,
            flavour="none",
            packages=tuple(PackageVersion(name, f"{version}-2") for name in ("libcuda1", "nvidia-persistenced")),
            kernels=(),
            dkms=None,
        )
        for version in (NEW, OLD)
    )
    return stage(fake, new, old)


def test_a_driver_whose_former_module_is_no_longer_on_disk_does_not_go_back(provided: Staged) -> None:
    provided.machine.broken_smi = {NEW}

    record = provided.run("swap")

    assert record.state == "quarantined"
    assert re.search(f"verify: .*there is no way back: kernel module {OLD} .* and {NEW} is on disk", record.reason)
    assert {name: one.version for name, one in provided.machine.packages.items()} == {
        "libcuda1": f"{NEW}-2",
        "nvidia-persistenced": f"{NEW}-2",
    }
    assert set(provided.machine.loaded.values()) == {NEW}

    provided.machine.broken_smi = set()
    assert provided.run("swap").state == "done"


def test_a_module_that_cannot_be_read_in_time_does_not_count_as_missing(provided: Staged) -> None:
    provided.machine.slow_modinfo = True
    before = list(provided.machine.changes())

    record = provided.run("swap")

    assert record.state == "failed"
    assert re.search("`modinfo .*` took longer than .*try again", record.reason)
    assert provided.machine.changes() == before

    provided.machine.slow_modinfo = False
    assert provided.run("swap").state == "done"


def test_a_way_back_by_hand_waits_for_the_former_module(provided: Staged) -> None:
    provided.run("swap")
    before = list(provided.machine.changes())

    refused = provided.run("back")

    assert refused.state == "failed"
    assert f"kernel module {OLD} would have to be loaded again" in refused.reason
    assert provided.machine.changes() == before

    provided.machine.on_disk[KERNEL] = (OLD, "proprietary")
    assert provided.run("back").state == "done"
    assert set(provided.machine.loaded.values()) == {OLD}
