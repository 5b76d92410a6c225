"""`grapnel-driver reboot` reboots the node for a change that waits for it, and for nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver import reboot as reboots
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.run import read_run
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import StoreError
from ansible_collections.grapnel.node.plugins.module_utils.driver.status import read_status

from tests.playbooks.driver.conftest import hold_a_gpu, pin

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.playbooks.driver.conftest import Staged
    from tests.playbooks.driver.machines import FakeMachine


def test_the_node_is_rebooted_for_a_change_that_waits_for_it(allowed: Staged) -> None:
    pin(allowed.machine)
    record = allowed.run("swap")

    reason = reboots.reboot(allowed.machine.host())

    assert reason == record.reboot
    assert allowed.machine.calls[-1] == "systemctl --no-block reboot"


def in_service(machine: FakeMachine) -> None:
    machine.write("usr/lib/grapnel/node/grapnel-node")


def rebooted(machine: FakeMachine) -> None:
    machine.reboot()


REFUSALS: dict[str, tuple[Callable[[FakeMachine], None], str]] = {
    "the GPUs are in service": (in_service, "not rebooted: the GPUs are in service; .*grapnel-node release"),
    "a process holds a GPU": (hold_a_gpu, r"not rebooted: the driver is in use: train \(pid 4711, job.service\)"),
    "it was rebooted already": (rebooted, "the node was rebooted already: run `swap [0-9a-f]{12}`"),
}


@pytest.mark.parametrize(("happens", "words"), REFUSALS.values(), ids=REFUSALS)
def test_the_node_is_not_rebooted(allowed: Staged, happens: Callable[[FakeMachine], None], words: str) -> None:
    pin(allowed.machine)
    allowed.run("swap")
    happens(allowed.machine)

    with pytest.raises(StoreError, match=words):
        reboots.reboot(allowed.machine.host())
    assert "systemctl --no-block reboot" not in allowed.machine.calls


def test_released_gpus_may_be_rebooted(allowed: Staged) -> None:
    pin(allowed.machine)
    allowed.run("swap")
    in_service(allowed.machine)
    allowed.machine.write("var/lib/grapnel/node/released.json", "{}")

    assert reboots.reboot(allowed.machine.host())


def test_no_node_is_rebooted_without_a_change_that_waits(upgrade: Staged) -> None:
    upgrade.run("swap")

    with pytest.raises(StoreError, match="no driver change waits for a reboot of this node"):
        reboots.reboot(upgrade.machine.host())


def test_the_status_tells_whether_the_reboot_is_still_to_come(allowed: Staged) -> None:
    host = allowed.machine.host()
    pin(allowed.machine)
    allowed.run("swap")

    waiting = read_status(host)
    allowed.machine.reboot()
    after = read_status(host)
    allowed.run("swap")

    assert (waiting["reboot_due"], waiting["run"]["step"]) == (True, "reboot")
    assert (after["reboot_due"], after["run"]["state"]) == (False, "needs-reboot")
    assert read_status(host)["reboot_due"] is False


def test_a_record_of_an_older_program_is_read(allowed: Staged) -> None:
    allowed.run("swap")
    host = allowed.machine.host()
    place = allowed.machine.root / "var/lib/grapnel/driver/run.json"
    record = json.loads(place.read_text())
    for key in ("reboot", "asked_in", "reboots"):
        del record[key]
    place.write_text(json.dumps(record))

    read = read_run(host)

    assert read is not None
    assert (read.state, read.reboots) == ("done", 0)
