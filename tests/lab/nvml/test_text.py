"""The text of a machine, written by Python and read by both halves."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lab.nvml import build, models
from lab.nvml.errors import PathError
from lab.nvml.machine import GIB, Machine, Process
from lab.nvml.text import change, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable

FULL = (
    models.with_mig(models.machine("a100-40gb", 4), 2, ["3g.20gb", "1g.5gb"])
    .with_gpu(0, processes=(Process(1, GIB),), numa_node=-1)
    .with_xid(0, 79)
    .with_failure("nvmlDeviceGetName", 999, gpu=1)
)


@pytest.mark.parametrize("machine", [Machine(), models.machine("t4", 16), FULL], ids=["empty", "large", "full"])
def test_a_machine_survives_its_text(machine: Machine) -> None:
    assert decode(encode(machine)) == machine


@pytest.fixture(scope="module")
def first_bad_line() -> Callable[[bytes], int]:
    """Return the C parser: the number of the first line that it does not understand, else 0."""
    check = ctypes.CDLL(str(build())).gpusim_check
    check.restype = ctypes.c_size_t
    check.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    return lambda text: int(check(text, len(text)))


def test_the_library_understands_every_value_of_a_machine(first_bad_line: Callable[[bytes], int]) -> None:
    mig = replace(FULL.gpus[2].migs[0], processes=(Process(2, 1),))
    machine = FULL.with_gpu(2, migs=(mig,))
    text = encode(machine)
    line = first_bad_line(text.encode())
    assert line == 0, text.splitlines()[line - 1]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("absent=1", id="unknown value"),
        pytest.param("gpu0.absent=1", id="unknown value of a list's element"),
        pytest.param("gpu1.name=x", id="position that does not follow"),
        pytest.param("gpu.name=x", id="list without a position"),
        pytest.param("gpu99999999999999999999.name=x", id="position beyond all numbers"),
        pytest.param("gpu0=x", id="record without a part"),
        pytest.param("call_cost_us", id="no value"),
        pytest.param("call_cost_us=", id="empty number"),
        pytest.param("call_cost_us=1x", id="not a number"),
        pytest.param("call_cost_us=-1", id="negative count"),
        pytest.param("call_cost_us=4294967296", id="number that does not fit"),
        pytest.param("gpu0.memory_total=18446744073709551616", id="large number that does not fit"),
        pytest.param("gpu0.numa_node=2147483648", id="signed number that does not fit"),
        pytest.param("call_cost_us.x=1", id="part of a number"),
        pytest.param("module=" + "x" * 96, id="text that does not fit"),
        pytest.param("module=a\0b", id="zero byte"),
        pytest.param(f"gpu0.{'ecc.' * 2000}x=1", id="path that goes on"),
        pytest.param("\n".join(f"gpu{i}.name=x" for i in range(65)), id="one GPU too many"),
        pytest.param("=", id="nothing at all"),
    ],
)
def test_the_library_refuses(text: str, first_bad_line: Callable[[bytes], int]) -> None:
    assert first_bad_line(b"sys_root=/sys\n" + text.encode()) == text.count("\n") + 2


def test_a_single_value_is_changed_by_its_path() -> None:
    machine = change(models.machine(count=2), "gpu1.ecc.volatile_uncorrected", "0x10")
    assert machine.gpus[1].ecc.volatile_uncorrected == 16
    assert machine.gpus[0] == models.machine(count=2).gpus[0]


def test_a_list_grows_by_its_next_position() -> None:
    machine = change(models.machine(), "gpu0.process0.pid", "42")
    assert machine.gpus[0].processes == (Process(pid=42),)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("gpu0.speed", "1", "no value speed in gpu"),
        ("gpu3.temperature", "1", "gpu3 is not the next one: there are 1"),
        ("gpu0.temperature", "warm", "temperature takes a whole number, not warm"),
        ("gpu0.mig_enabled", "maybe", "mig_enabled takes 0 or 1, not maybe"),
        ("gpu0.ecc", "1", "ecc is not a single value"),
        ("gpu0.name.first", "1", "name has no fields"),
    ],
)
def test_a_wrong_path_or_value_is_named(path: str, value: str, message: str) -> None:
    with pytest.raises(PathError, match=message):
        change(models.machine(), path, value)


def test_a_line_without_a_value_is_refused() -> None:
    with pytest.raises(PathError, match="not a path and a value: nonsense"):
        decode("nonsense\n")
