"""Processes by their ids: real ones of this machine, and folders in the form of /proc."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.holdings.holders.cgroup import Place, parse_cgroup
from plugin.holdings.holders.processes import ProcessTable, start_ticks
from tests.plugin.proc_folder import ProcFolder

PROC = Path("/proc")
TICKS_PER_S = 100
POD = Place(None, "0f3b7a52-9d1e-4c60-8a77-3f1d5e6b9a10", "4f1c" * 16)


def now_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@pytest.fixture
def proc(tmp_path: Path) -> ProcFolder:
    return ProcFolder(tmp_path / "proc")


def test_a_real_process_has_its_place() -> None:
    own = Path("/proc/self/cgroup").read_text()
    assert ProcessTable(PROC).place(os.getpid(), now_s()) == parse_cgroup(own)


def test_a_real_process_that_began_after_the_list_has_none() -> None:
    before_s = now_s()
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            time.sleep(0.03)  # the kernel's times are of ticks of 10 ms
            assert ProcessTable(PROC).place(process.pid, before_s) is None
            assert ProcessTable(PROC).place(process.pid, now_s()) is not None
        finally:
            process.kill()


def test_a_real_process_that_ended_has_none() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert ProcessTable(PROC).place(process.pid, now_s()) is None


@pytest.mark.parametrize(
    ("began", "before_s", "is_told"),
    [
        pytest.param(100, 1.5, True, id="long before"),
        pytest.param(100, 1.01, True, id="in the tick before"),
        pytest.param(100, 1.005, False, id="in the same tick: perhaps after"),
        pytest.param(100, 0.9, False, id="after: the id was another's"),
    ],
)
def test_only_who_had_the_id_before_is_told(proc: ProcFolder, began: int, before_s: float, *, is_told: bool) -> None:
    proc.add(7, POD, began_ticks=began)
    assert ProcessTable(proc.folder, TICKS_PER_S).place(7, before_s) == (POD if is_told else None)


@pytest.mark.parametrize("missing", ["stat", "cgroup"])
def test_a_process_that_ends_meanwhile_has_none(proc: ProcFolder, missing: str) -> None:
    proc.add(7, POD)
    (proc.folder / "7" / missing).unlink()
    assert ProcessTable(proc.folder, TICKS_PER_S).place(7, 10) is None


@given(st.integers(0, 2**40), st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=15))
def test_a_name_of_any_characters_does_not_hide_the_start(ticks: int, name: str) -> None:
    assert start_ticks(f"7 ({name}) S 1 " + "0 " * 17 + f"{ticks} 0 0\n") == ticks


@pytest.mark.parametrize("stat", ["", "7 (x) S 1 2", "7 (x) " + "x " * 30], ids=["empty", "cut off", "no numbers"])
def test_a_status_that_is_none_is_an_error(stat: str) -> None:
    with pytest.raises(ValueError, match=r"not the status|invalid literal"):
        start_ticks(stat)


@pytest.mark.parametrize(
    ("namespace", "has_them"),
    [
        pytest.param("pid:[4026531836]", True, id="the machine's own"),
        pytest.param("pid:[4026532001]", False, id="a container's"),
        pytest.param(None, False, id="not told"),
    ],
)
def test_the_process_namespace_is_known(proc: ProcFolder, namespace: str | None, *, has_them: bool) -> None:
    proc.set_namespace(namespace)
    assert ProcessTable(proc.folder).has_the_machines_ids() is has_them


@pytest.mark.functional
@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes process namespaces here")
def test_a_real_namespace_of_its_own_is_noticed() -> None:
    script = "from pathlib import Path; from plugin.holdings.holders.processes import ProcessTable as Table; "
    script += "print(Table(Path('/proc')).has_the_machines_ids())"
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-c", script]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"
