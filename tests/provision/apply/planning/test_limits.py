"""Limits of one process: what they stop, and that they are lifted afterwards."""

from __future__ import annotations

import resource
import signal

import pytest

from provision.apply.errors import LimitError
from provision.apply.planner_process.limits import Limits, limit_this_process

MIB = 1 << 20
QUESTION = "are its files or package lists unusually large?"
STANDING = (resource.RLIMIT_CPU, resource.RLIMIT_DATA)


def standing() -> list[object]:
    return [*map(resource.getrlimit, STANDING), signal.getsignal(signal.SIGXCPU)]


def swallow() -> None:
    """Use the processor, and take every exception for one's own, as parsers do."""
    while True:
        try:
            sum(range(1000))
        except Exception:  # noqa: BLE001, S112 - what this is about
            continue


@pytest.mark.slow
def test_time_of_the_processor_ends_even_what_catches_everything() -> None:
    before = standing()
    with pytest.raises(LimitError) as raised, limit_this_process("planning n1", Limits(cpu_s=1)):
        swallow()
    assert raised.value.message == f"planning n1 took more than 1 s of CPU: {QUESTION}"
    assert standing() == before


def test_memory_ends() -> None:
    before = standing()
    with pytest.raises(LimitError) as raised, limit_this_process("planning n1", Limits(memory_bytes=16 * MIB)):
        bytearray(2048 * MIB)  # more than tests before this one may have freed, which is there to be used again
    assert raised.value.message == f"planning n1 took more than 16 MiB of memory: {QUESTION}"
    assert len(bytearray(64 * MIB)) == 64 * MIB
    assert standing() == before


def test_what_goes_wrong_inside_is_told_as_it_is() -> None:
    before = standing()
    with pytest.raises(ZeroDivisionError), limit_this_process("planning n1"):
        raise ZeroDivisionError
    assert standing() == before
