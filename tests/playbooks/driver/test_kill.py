"""A run that is killed at any moment, with or without a reboot, is brought to its end by the next one.

`make test` kills at every eighth moment; `make crashes` at every one (``CRASHES=all``).
"""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.run import read_run
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import StoreError

from tests.playbooks.driver.conftest import NEW, OLD, SETTINGS, Staged, make_change, put_driver, stage
from tests.playbooks.driver.killing import KilledError, Killer
from tests.playbooks.driver.machines import FakeMachine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.grapnel.node.plugins.module_utils.driver.record.run import RunRecord

pytestmark = pytest.mark.slow

CHUNKS = 8  # of the moments of a run, for workers to share
EVERY = 1 if os.environ.get("CRASHES") == "all" else 8
MEMORY = "/dev/shm"  # thousands of fsyncs wait for no disk there
TRIES = 4


@contextmanager
def a_node(*, driver: bool = True, reboot: bool = False) -> Iterator[Staged]:
    """Make a node with the older driver, or none, and the newer one staged on it, which a reboot may be needed for."""
    with tempfile.TemporaryDirectory(dir=MEMORY if Path(MEMORY).is_dir() else None) as folder:
        machine = FakeMachine(Path(folder))
        if driver:
            put_driver(machine, OLD)
        before = make_change(OLD, files=(), services=()) if driver else None
        yield stage(machine, make_change(NEW, reboot=reboot), before)


def moments(chunk: int) -> Iterator[int]:
    """Return the moments of a chunk, without an end."""
    return count(chunk * EVERY, CHUNKS * EVERY)


def kill(staged: Staged, verb: str, at: int, *, files: bool = True) -> bool:
    """Run a verb and kill it, at one of its uses of files, too; tells whether it came to its end before."""
    try:
        staged.run(verb, Killer(at, files=files))
    except KilledError:
        return False
    return True


def continue_(staged: Staged, verb: str, *, reboots: bool) -> RunRecord:
    """Do what the controller does after a kill: call the verb again until there is a result."""
    if reboots:
        staged.machine.reboot()
    for _ in range(TRIES):
        try:
            record = staged.run(verb)
            if record.state != "needs-reboot":
                return record
            staged.machine.reboot()
        except StoreError as error:
            assert "there is nothing to" in str(error)  # noqa: PT017 - it had come to its end
            found = read_run(staged.machine.host())
            assert found is not None
            return found
    raise AssertionError("there is no end")


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_swap_that_is_killed_ends_with_the_new_driver(chunk: int) -> None:
    for at in moments(chunk):
        with a_node() as staged:
            is_over = kill(staged, "swap", at)

            record = continue_(staged, "swap", reboots=at % 3 == 0)

            assert (record.state, record.reason) == ("done", ""), f"killed at {at}"
            assert staged.machine.initramfs == (NEW, "proprietary"), f"killed at {at}: the next boot loads another"
            staged.assert_has(NEW, held=True)
        if is_over:
            return


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_failing_swap_that_is_killed_ends_with_the_old_driver(chunk: int) -> None:
    for at in moments(chunk):
        with a_node() as staged:
            staged.machine.unloadable = {NEW}
            is_over = kill(staged, "swap", at)

            record = continue_(staged, "swap", reboots=at % 3 == 0)

            assert record.state == "returned", f"killed at {at}: {record.reason}"
            assert "Key was rejected by service" in record.reason
            staged.assert_has(OLD, held=False)
            assert not staged.machine.has(SETTINGS)
        if is_over:
            return


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_way_back_that_is_killed_ends_with_the_old_driver(chunk: int) -> None:
    for at in moments(chunk):
        with a_node() as staged:
            staged.run("swap")
            is_over = kill(staged, "back", at)

            record = continue_(staged, "back", reboots=at % 3 == 0)

            assert (record.state, record.verb) == ("done", "back"), f"killed at {at}: {record.reason}"
            assert staged.machine.initramfs == (OLD, "proprietary"), f"killed at {at}: the next boot loads another"
            staged.assert_has(OLD, held=False)
            assert not staged.machine.has(SETTINGS)
        if is_over:
            return


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_failing_first_installation_that_is_killed_ends_with_a_clean_node(chunk: int) -> None:
    for at in moments(chunk):
        with a_node(driver=False) as staged:
            staged.machine.broken_smi = {NEW}
            is_over = kill(staged, "swap", at)

            record = continue_(staged, "swap", reboots=at % 3 == 0)

            assert record.state == "returned", f"killed at {at}: {record.reason}"
            staged.assert_has("", held=False)
            assert not staged.machine.has(SETTINGS)
        if is_over:
            return


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_removal_that_is_killed_ends_with_a_clean_node(chunk: int) -> None:
    for at in moments(chunk):
        with a_node(driver=False) as staged:
            staged.run("swap")
            is_over = kill(staged, "remove", at)

            record = continue_(staged, "remove", reboots=at % 3 == 0)

            assert (record.state, record.verb) == ("done", "remove"), f"killed at {at}: {record.reason}"
            staged.assert_has("", held=False)
            assert not staged.machine.has(SETTINGS)
        if is_over:
            return


def pin(staged: Staged) -> None:
    """Have the kernel count a use of every module that is loaded, now and after every boot."""
    staged.machine.pinned, staged.machine.pins_again = {"nvidia"}, True
    staged.machine.show()


def come_to_reboot(staged: Staged, verb: str, times: int) -> None:
    """Run a verb to the reboot that it needs, and reboot."""
    for _ in range(times):
        assert staged.run(verb).state == "needs-reboot"
        staged.machine.reboot()


@pytest.mark.parametrize("rounds", [0, 1], ids=["before the reboot", "after it"])
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_swap_with_a_reboot_that_is_killed_ends_with_the_new_driver(chunk: int, rounds: int) -> None:
    for at in moments(chunk):
        with a_node(reboot=True) as staged:
            pin(staged)
            come_to_reboot(staged, "swap", rounds)
            is_over = kill(staged, "swap", at, files=False)

            record = continue_(staged, "swap", reboots=at % 3 == 0)

            assert (record.state, record.reason) == ("done", ""), f"killed at {at}"
            staged.assert_has(NEW, held=True)
        if is_over:
            return


@pytest.mark.parametrize("rounds", [0, 1, 2], ids=["before the first reboot", "between them", "after the second"])
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_failing_swap_with_reboots_that_is_killed_ends_with_the_old_driver(chunk: int, rounds: int) -> None:
    for at in moments(chunk):
        with a_node(reboot=True) as staged:
            pin(staged)
            staged.machine.broken_smi = {NEW}
            come_to_reboot(staged, "swap", rounds)
            is_over = kill(staged, "swap", at, files=False)

            record = continue_(staged, "swap", reboots=at % 3 == 0)

            assert record.state == "returned", f"killed at {at}: {record.reason}"
            assert record.reason.startswith("verify: nvidia-smi fails with 9"), record.reason
            staged.assert_has(OLD, held=False)
            assert not staged.machine.has(SETTINGS)
        if is_over:
            return


def test_a_run_may_be_killed_again_and_again() -> None:
    with a_node() as staged:
        for at in (16, 35, 50, 65, 80):
            assert not kill(staged, "swap", at)

        assert staged.run("swap").state == "done"
        staged.assert_has(NEW, held=True)


def test_a_swap_that_was_cut_short_can_be_gone_back_from() -> None:
    for at in (23, 46, 70, 93):
        with a_node() as staged:
            assert not kill(staged, "swap", at)

            record = staged.run("back")

            assert record.state == "returned", f"killed at {at}: {record.reason}"
            staged.assert_has(OLD, held=False)


def test_a_transaction_that_was_cut_short_is_finished_before_it_is_undone() -> None:
    """Which files came with a package that dpkg was killed at is not in its database yet."""
    for at in count():
        with a_node() as staged:
            assert not kill(staged, "swap", at)
            if not staged.machine.interrupted:
                continue
            staged.machine.calls.clear()

            record = staged.run("back")

            taken = [call.split("--fix-broken ")[1] for call in staged.machine.calls if call.startswith("apt-get")]
            assert record.state == "returned", record.reason
            assert [f"/{staged.id}/before/" in files for files in taken] == [False, True]
            staged.assert_has(OLD, held=False)
            return


def test_another_change_waits_until_the_first_is_whole() -> None:
    with a_node() as staged:
        kill(staged, "swap", 58)
        other = stage(staged.machine, make_change(NEW, hold=False), make_change(OLD, files=(), services=()))

        with pytest.raises(StoreError, match=f"`swap {staged.id}` was cut short .* run `swap {staged.id}` again"):
            other.run("swap")
