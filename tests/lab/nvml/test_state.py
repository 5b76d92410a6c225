"""The region that both halves share: written in place, read while it is written."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lab.nvml import models, state
from lab.nvml.errors import StateError
from lab.nvml.machine import Gpu, Link, Machine

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.nvml.client import Client


def test_a_written_machine_is_read(tmp_path: Path) -> None:
    state.write(tmp_path / "state", models.machine("l4", 3))
    assert state.read(tmp_path / "state") == models.machine("l4", 3)


def test_writing_keeps_the_inode_and_size(library: Path) -> None:
    before = library.stat()
    state.write(library, Machine())
    assert (library.stat().st_ino, library.stat().st_size) == (before.st_ino, before.st_size)


def test_a_shorter_machine_leaves_nothing_of_the_longer_one(tmp_path: Path) -> None:
    state.write(tmp_path / "state", models.machine("a100-40gb", 8))
    state.write(tmp_path / "state", Machine())
    assert state.read(tmp_path / "state") == Machine()


def test_a_machine_that_does_not_fit_is_refused_and_the_old_one_stays(tmp_path: Path) -> None:
    state.write(tmp_path / "state", Machine())
    huge = Machine(gpus=(Gpu(links=tuple(Link() for _ in range(3000))),))
    with pytest.raises(StateError, match="too big"):
        state.write(tmp_path / "state", huge)
    assert state.read(tmp_path / "state") == Machine()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "has no state", id="empty"),
        pytest.param(b"GPUSIM1\n" + b"\1" * 100, "is damaged", id="wrong checksum"),
        pytest.param(b"\x7fELF", "has no state at its end", id="library without room"),
    ],
)
def test_what_is_no_state_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(content)
    with pytest.raises(StateError, match=message):
        state.read(tmp_path / "state")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="absent"):
        state.read(tmp_path / "absent")


def _set_generation(path: Path, generation: int) -> None:
    descriptor = os.open(path, os.O_RDWR)
    offset = os.fstat(descriptor).st_size - state.STATE_SIZE
    os.pwrite(descriptor, generation.to_bytes(8, "little"), offset + 8)
    os.close(descriptor)


@pytest.mark.slow
def test_readers_go_on_with_the_old_machine_when_a_writer_died(nvml: Client, library: Path) -> None:
    nvml("kept.update(handle=gpu(0))")
    _set_generation(library, 5)
    assert nvml("nvmlDeviceGetTemperature(kept['handle'], 0)") == 30
    state.update(library, lambda machine: machine.with_gpu(0, temperature=70))
    assert nvml("nvmlDeviceGetTemperature(kept['handle'], 0)") == 70


@pytest.mark.slow
def test_readers_never_see_half_of_a_change(nvml: Client, library: Path) -> None:
    """Two values that are always written alike are read alike, by one call each time."""
    nvml("kept.update(read=lambda: [v.value.uiVal for v in nvmlDeviceGetFieldValues(gpu(0), [82, 94])])")
    nvml.send("[kept['read']() for _ in range(2000)]")
    for value in range(100):
        state.update(
            library,
            lambda machine, value=value: replace(  # type: ignore[misc] # defaults bind the loop's value
                machine,
                gpus=(replace(machine.gpus[0], memory_temperature=value, pcie_replays=value), *machine.gpus[1:]),
            ),
        )
    pairs = nvml.receive()["value"]
    assert all(one == other for one, other in pairs if [one, other] != [32, 0])
