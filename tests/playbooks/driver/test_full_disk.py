"""A disk that becomes full during a run keeps neither the node from going back nor the run from being told."""

from __future__ import annotations

import contextlib
import os
import subprocess
from itertools import count
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.run import is_going_back, read_run
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import StoreError

from tests.playbooks.driver.conftest import NEW, OLD, Staged, make_change, put_driver, stage
from tests.playbooks.driver.killing import KilledError, Killer
from tests.playbooks.driver.machines import FakeMachine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.functional,
    pytest.mark.skipif(os.geteuid() != 0, reason="a small file system of its own is mounted by root alone"),
]

STORE = "var/lib/grapnel/driver"
SIZE = "2m"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[FakeMachine]:
    """A machine whose store lies on a small disk."""
    made = FakeMachine(tmp_path)
    place = tmp_path / STORE
    place.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=0700", "tmpfs", str(place)], check=True)
    try:
        yield made
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill(machine: FakeMachine) -> None:
    """Leave not a byte, as somebody's log would."""
    with (machine.root / STORE / "somebody.log").open("ab", buffering=0) as stream:
        for size in (64 * 1024, 4096, 64, 1):
            try:
                while stream.write(b"x" * size):
                    pass
            except OSError:
                continue


def make_room(machine: FakeMachine) -> None:
    (machine.root / STORE / "somebody.log").unlink()


class Filler(Killer):
    """Fills the disk at one moment, instead of killing."""

    def __init__(self, at: int, machine: FakeMachine) -> None:
        super().__init__(at)
        self._machine = machine

    def moment(self) -> None:
        if self.count == self.at:
            fill(self._machine)
        self.count += 1


class BackKiller(Killer):
    """Kills in the midst of the way back."""

    def __init__(self, machine: FakeMachine) -> None:
        super().__init__()
        self._machine = machine

    def moment(self) -> None:
        if self.at < 0 and is_going_back(read_run(self._machine.host())):
            self.at = self.count + 12
        super().moment()


def upgrade(machine: FakeMachine) -> Staged:
    put_driver(machine, OLD)
    return stage(machine, make_change(NEW), make_change(OLD, files=(), services=()))


def test_a_full_disk_is_found_before_anything_is_disturbed(machine: FakeMachine) -> None:
    staged = upgrade(machine)
    fill(machine)

    with pytest.raises(StoreError, match=r"no-space: /var/lib/grapnel/driver has no room .*: make room on that file"):
        staged.run("swap")

    assert machine.changes() == []
    staged.assert_has(OLD, held=False)
    make_room(machine)
    assert staged.run("swap").state == "done"


def test_a_way_back_that_was_cut_short_needs_no_room_to_come_to_its_end(machine: FakeMachine) -> None:
    staged = upgrade(machine)
    machine.unloadable = {NEW}
    with pytest.raises(KilledError):
        staged.run("swap", BackKiller(machine))
    assert is_going_back(read_run(machine.host()))
    (machine.root / STORE / "reserve").unlink()
    fill(machine)

    with contextlib.suppress(OSError):  # its end cannot be written down
        staged.run("swap")
    staged.assert_has(OLD, held=False)
    make_room(machine)

    assert staged.run("swap").state == "returned"
    staged.assert_has(OLD, held=False)


def test_a_way_forward_that_was_cut_short_says_that_it_needs_room(machine: FakeMachine) -> None:
    staged = upgrade(machine)
    with pytest.raises(KilledError):
        staged.run("swap", Killer(60))
    (machine.root / STORE / "reserve").unlink()
    fill(machine)

    with pytest.raises(StoreError, match="no-space"):
        staged.run("swap")
    make_room(machine)

    assert staged.run("swap").state == "done"
    staged.assert_has(NEW, held=True)


def works(machine: FakeMachine) -> None:
    del machine


def refuses_the_module(machine: FakeMachine) -> None:
    machine.unloadable = {NEW}


def has_no_room_for_packages(machine: FakeMachine) -> None:
    machine.is_disk_full = True


@pytest.mark.slow
@pytest.mark.parametrize("node", [works, refuses_the_module, has_no_room_for_packages])
def test_a_disk_that_becomes_full_at_any_moment_leaves_a_driver_and_a_record(
    machine: FakeMachine, node: Callable[[FakeMachine], None]
) -> None:
    for at in count(0, 5):
        put_driver(machine, OLD)
        staged = upgrade(machine)
        node(machine)
        filler = Filler(at, machine)

        try:
            record = staged.run("swap", filler)
        except StoreError:
            assert machine.changes() == []
            make_room(machine)
            continue

        assert read_run(machine.host()) == record, f"full at {at}"
        if record.state == "quarantined":  # it became full once more, in what was kept for the way back
            assert "No space left on device" in record.reason, f"full at {at}"
        else:
            staged.assert_has(NEW if record.state == "done" else OLD, held=record.state == "done")
        if filler.count <= at:
            return
        make_room(machine)
        machine.unloadable, machine.is_disk_full = set(), False
        assert staged.run("swap").state == "done", f"full at {at}"
        staged.assert_has(NEW, held=True)
        assert staged.run("back").state == "done"
        staged.assert_has(OLD, held=False)
