"""Time slices by nvidia-smi: set, given back, neither forgotten by a kill nor asked for of a GPU that is ill."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from plugin.base.log import Logger
from plugin.sharing.time_slices import TimeSlices
from tests.plugin.fakes import gpu
from tests.plugin.mps.node import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

ONE, TWO = gpu(0).uuid, gpu(1).uuid
BOTH = frozenset({ONE, TWO})
# As NVIDIA's own: it says so and ends with 3 where a GPU has no time slices to be set.
SMI = """#!/bin/sh
cd "$(dirname "$0")"
[ -e broken ] && { echo 'Unable to set timeslice: Not Supported'; exit 3; }
echo "$*" >> calls
"""


class Machine:
    """What outlives the daemon."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.smi = folder / "nvidia-smi"
        self.smi.write_text(SMI)
        self.smi.chmod(0o755)

    def calls(self) -> list[tuple[str, str]]:
        """Return which GPU was given which number."""
        path = self.folder / "calls"
        words = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        assert all(each[:2] == ["compute-policy", "-i"] and each[3] == "--set-timeslice" for each in words)
        return [(each[2], each[4]) for each in words]

    def live(self, act: Callable[[TimeSlices], Awaitable[None]]) -> None:
        async def run() -> None:
            slices = TimeSlices(self.folder / "notes", self.smi, lambda: None, Logger())
            try:
                await act(slices)
            finally:
                await slices.close()

        asyncio.run(run())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_slices_are_set_and_given_back(machine: Machine) -> None:
    async def act(slices: TimeSlices) -> None:
        slices.want({ONE: "Long"}, BOTH)
        assert slices.problem(ONE)
        assert not slices.problem(TWO)
        await until(lambda: not slices.problem(ONE))
        slices.want({ONE: "Short"}, BOTH)
        assert slices.problem(ONE)
        await until(lambda: not slices.problem(ONE))
        slices.want({}, BOTH)
        assert not slices.is_settled
        await until(lambda: slices.is_settled)

    machine.live(act)
    assert machine.calls() == [(ONE, "3"), (ONE, "1"), (ONE, "0")]


def test_nothing_is_run_where_nobody_wants_anything(machine: Machine) -> None:
    async def act(slices: TimeSlices) -> None:
        slices.want({}, BOTH)
        await asyncio.sleep(0)
        assert slices.is_settled

    machine.live(act)
    assert machine.calls() == []
    assert not (machine.folder / "notes").exists()


def test_the_next_daemon_sets_again_what_is_wanted_and_gives_back_the_rest(machine: Machine) -> None:
    async def first(slices: TimeSlices) -> None:
        slices.want({ONE: "Long", TWO: "Medium"}, BOTH)
        await until(lambda: not slices.problem(ONE) and not slices.problem(TWO))

    async def second(slices: TimeSlices) -> None:
        assert slices.problem(ONE)  # nobody is given it before it is as the driver has it
        slices.want({TWO: "Medium"}, BOTH)
        await until(lambda: not slices.problem(TWO) and slices.is_settled)

    machine.live(first)
    machine.live(second)
    assert sorted(machine.calls()[2:]) == sorted([(ONE, "0"), (TWO, "2")])


def test_a_gpu_that_is_ill_or_let_go_is_not_asked_until_it_is_back(machine: Machine) -> None:
    async def act(slices: TimeSlices) -> None:
        slices.want({ONE: "Long", TWO: "Long"}, frozenset({TWO}))
        await until(lambda: not slices.problem(TWO))
        assert slices.problem(ONE)
        slices.want({}, frozenset({TWO}))
        await until(lambda: slices.is_settled)
        slices.want({ONE: "Long"}, frozenset())
        slices.want({ONE: "Long"}, BOTH)
        await until(lambda: not slices.problem(ONE))

    machine.live(act)
    assert machine.calls() == [(TWO, "3"), (TWO, "0"), (ONE, "3")]


def test_a_gpu_that_was_let_go_may_have_another_driver_and_is_asked_once_more(machine: Machine) -> None:
    async def act(slices: TimeSlices) -> None:
        slices.want({ONE: "Long", TWO: "Long"}, BOTH)
        await until(lambda: not slices.problem(ONE) and not slices.problem(TWO))
        slices.want({ONE: "Long", TWO: "Long"}, frozenset({TWO}))
        assert slices.problem(ONE)
        slices.want({ONE: "Long", TWO: "Long"}, BOTH)
        await until(lambda: not slices.problem(ONE))

    machine.live(act)
    assert sorted(machine.calls()) == [(ONE, "3"), (ONE, "3"), (TWO, "3")]


def test_one_that_was_closed_sets_nothing_any_more(machine: Machine) -> None:
    """The driver that a configuration replaces is shown the GPUs until it has ended."""

    async def act(slices: TimeSlices) -> None:
        slices.want({ONE: "Long"}, BOTH)
        await slices.close()
        slices.want({TWO: "Long"}, BOTH)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    machine.live(act)
    assert TWO not in dict(machine.calls())


def test_what_the_program_says_against_it_is_the_reason_and_it_is_tried_again(machine: Machine) -> None:
    broken = machine.folder / "broken"
    broken.touch()

    async def act(slices: TimeSlices) -> None:
        slices.want({ONE: "Long"}, BOTH)
        await until(lambda: "Not Supported" in slices.problem(ONE))
        broken.unlink()
        await until(lambda: not slices.problem(ONE))

    machine.live(act)


def test_a_program_that_is_not_there_is_named(machine: Machine) -> None:
    machine.smi.unlink()

    async def act(slices: TimeSlices) -> None:
        slices.want({ONE: "Long"}, BOTH)
        await until(lambda: f"{machine.smi} cannot be started" in slices.problem(ONE))

    machine.live(act)
