from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from plugin.base.errors import MpsError
from plugin.sharing.mps import protocol
from plugin.sharing.mps.plan import MpsDaemon
from tests.plugin.fakes import gpu

DAEMON = MpsDaemon(gpu(0).uuid, Path("/run/grapnel/mps") / gpu(0).uuid, 4, 20389, 25)


def test_limits_are_set_by_uuid_in_whole_units() -> None:
    assert protocol.set_limits(DAEMON) == (
        f"set_default_device_pinned_mem_limit {DAEMON.uuid} 20389M",
        "set_default_active_thread_percentage 25",
    )
    assert protocol.set_server_limits(DAEMON, 71) == (
        f"set_device_pinned_mem_limit 71 {DAEMON.uuid} 20389M",
        "set_active_thread_percentage 71 25",
    )


@pytest.mark.parametrize(
    ("threads", "memory", "memory_mib", "may_be"),
    [
        pytest.param("25.0\n", "19G\n", 20389, True, id="shown in whole GiB, rounded down"),
        pytest.param("25.0", "20G", 20389, True, id="rounded up"),
        pytest.param("25.0", "20389M", 20389, True, id="shown exactly"),
        pytest.param("25", "900M", 900, True, id="less than a GiB"),
        pytest.param("25.0", "19.9 GiB", 20389, True, id="in words that nobody knows yet"),
        pytest.param("25.0", "21G", 20389, False, id="a GiB more"),
        pytest.param("25.0", "18G", 20389, False, id="a GiB less"),
        pytest.param("25.0", "20388M", 20389, False, id="a MiB less"),
        pytest.param("100.0", "19G", 20389, False, id="all threads"),
        pytest.param("25.0", "\n", 20389, False, id="no limit"),
    ],
)
def test_limits_are_recognised_as_drivers_show_them(
    threads: str, memory: str, memory_mib: int, *, may_be: bool
) -> None:
    assert protocol.ShownLimits(threads, memory).may_be(replace(DAEMON, memory_mib=memory_mib)) is may_be


@pytest.mark.parametrize("answer", ["", "many", "25.0\n25.0", "-1", "1e3"])
def test_a_percentage_that_is_none_is_an_error(answer: str) -> None:
    with pytest.raises(MpsError, match="get_default_active_thread_percentage is not understood"):
        protocol.parse_percentage(answer)


@pytest.mark.parametrize(("answer", "pids"), [("", ()), ("71\n", (71,)), ("71\n72\n", (71, 72)), ("71 72", (71, 72))])
def test_processes_are_read(answer: str, pids: tuple[int, ...]) -> None:
    assert protocol.parse_pids(answer) == pids


@pytest.mark.parametrize("answer", ["Failed to find server 7", "0", "-1", "12345678901"])
def test_processes_that_are_none_are_an_error(answer: str) -> None:
    with pytest.raises(MpsError, match="is not understood"):
        protocol.parse_pids(answer)
