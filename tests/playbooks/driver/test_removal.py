"""What a node keeps for driver changes goes with the driver, the program last."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver import removal as driver_removal
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.run import (
    QUARANTINED,
    RunRecord,
    is_managed,
    write_run,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import StoreError
from ansible_collections.grapnel.node.plugins.module_utils.driver.removal import find_leftovers, remove_leftovers
from ansible_collections.grapnel.node.plugins.module_utils.driver.status import read_status
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished
from ansible_collections.grapnel.node.plugins.module_utils.preflight.staged import read_driver_state

from tests.playbooks.driver.conftest import OLD, Staged

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = "/usr/lib/grapnel/driver"
SOURCES = ("/etc/apt/sources.list.d/grapnel-nvidia.sources", "/etc/apt/keyrings/grapnel-nvidia.asc")
KEPT = ("/etc/apt/sources.list.d/debian.sources", "/usr/lib/grapnel/releases/hook-1/RELEASE", "/var/lib/grapnel/node/x")


def install(staged: Staged) -> None:
    machine = staged.machine
    for path in (*SOURCES, *KEPT, "/usr/lib/grapnel/releases/driver-1/RELEASE"):
        machine.write(path, "1")
    (machine.root / PROGRAM.lstrip("/")).symlink_to("releases/driver-1")


def test_everything_of_driver_changes_goes_and_nothing_else(first: Staged) -> None:
    install(first)

    removed = remove_leftovers(first.machine.host())

    assert removed == [
        *SOURCES,
        "/var/lib/grapnel/driver",
        "/usr/lib/grapnel/releases/driver-1",
        PROGRAM,
    ]
    assert not any(first.machine.has(path) for path in removed)
    assert all(first.machine.has(path) for path in KEPT)
    assert find_leftovers(first.machine.host()) == []
    assert remove_leftovers(first.machine.host()) == []


def test_the_gpus_of_the_next_driver_are_not_out_of_service(first: Staged) -> None:
    first.machine.write("/var/lib/grapnel/node/released.json", "{}")
    first.machine.write("/var/lib/grapnel/site-upgrade", "")
    host, told = first.machine.host(), []
    host = replace(host, run=lambda words, _timeout_s: told.append(tuple(words)) or Finished(0))

    removed = remove_leftovers(host)

    assert removed[:2] == ["/var/lib/grapnel/node/released.json", "/var/lib/grapnel/site-upgrade"]
    assert told == [("systemctl", "try-restart", "grapnel-node.service")]


def test_a_kill_on_the_way_leaves_the_program_and_the_next_run_goes_on(
    first: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(first)
    really = driver_removal._remove

    def kill(place: Path) -> None:
        if place.name == "driver-1":
            raise OSError(5, "killed")
        really(place)

    monkeypatch.setattr(driver_removal, "_remove", kill)
    with pytest.raises(OSError, match="killed"):
        remove_leftovers(first.machine.host())
    assert (first.machine.root / PROGRAM.lstrip("/")).is_symlink()
    monkeypatch.undo()

    assert remove_leftovers(first.machine.host())[-1] == PROGRAM


def test_what_is_staged_alone_has_no_way_back_and_is_no_driver_to_remove(first: Staged) -> None:
    assert read_driver_state(first.machine.host())["back"] is None
    assert not is_managed(first.machine.host())


def test_after_a_swap_the_way_back_leads_to_the_driver_before(upgrade: Staged) -> None:
    upgrade.run("swap")
    state = read_driver_state(upgrade.machine.host())
    assert (state["back"], state["managed"], read_status(upgrade.machine.host())["managed"]) == (OLD, True, True)

    upgrade.run("back")
    state = read_driver_state(upgrade.machine.host())
    assert (state["back"], state["managed"]) == (None, True)

    upgrade.run("remove")
    state = read_driver_state(upgrade.machine.host())
    assert (state["back"], state["managed"]) == (None, False)


def test_from_a_first_driver_the_way_back_leads_to_none(first: Staged) -> None:
    first.run("swap")

    assert read_driver_state(first.machine.host())["back"] == ""


def test_a_way_back_that_lost_a_file_is_none(upgrade: Staged) -> None:
    upgrade.run("swap")
    folder = upgrade.machine.root / f"var/lib/grapnel/driver/staged/{upgrade.id}/before/packages"
    next(folder.iterdir()).unlink()

    assert read_driver_state(upgrade.machine.host())["back"] is None


def test_half_of_a_first_driver_is_gone_back_from_before_it_is_removed(first: Staged) -> None:
    write_run(first.machine.host(), RunRecord("r1", first.id, "swap", "u", state=QUARANTINED, reason="a disk"))

    assert is_managed(first.machine.host()), "what is there must not be forgotten"
    with pytest.raises(StoreError, match="half-way: run `back` first, then `remove`"):
        first.run("remove")


def test_what_runs_now_is_no_leftover(first: Staged) -> None:
    write_run(first.machine.host(), RunRecord("r1", first.id, "swap", "u"))

    assert is_managed(first.machine.host())
