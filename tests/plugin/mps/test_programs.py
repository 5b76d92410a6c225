from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plugin.base.errors import MpsError
from plugin.sharing.mps.programs import run_program

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(command: Sequence[str], timeout_s: float = 60, said: str = "", **environment: str) -> str:
    return asyncio.run(run_program(command, timeout_s, said=said, environment=environment))


def test_a_program_gets_its_input_and_says_its_answer() -> None:
    assert run(["cat"], said="get_server_list\n") == "get_server_list\n"


def test_it_sees_nothing_of_our_own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD_LIKE", "1")
    names = {line.partition("=")[0] for line in run(["env"], CUDA_MPS_PIPE_DIRECTORY="/p").splitlines()}
    assert names == {"PATH", "LC_ALL", "CUDA_MPS_PIPE_DIRECTORY"}


@pytest.mark.parametrize(
    ("command", "said", "words"),
    [
        pytest.param(["/nowhere/at/all"], "", "/nowhere/at/all cannot be started: no such file", id="not there"),
        pytest.param(["sh", "-c", "echo no >&2; exit 1"], "", "no: sh -c 'echo no >&2; exit 1'", id="its complaint"),
        pytest.param(["sh", "-c", "echo no; exit 1"], "", "no: sh -c", id="its answer, when it does not complain"),
        pytest.param(["false"], "quit\n", "exit code 1: echo quit | false", id="nothing but a code"),
    ],
)
def test_a_failure_is_told_with_the_command(command: list[str], said: str, words: str) -> None:
    with pytest.raises(MpsError) as caught:
        run(command, said=said)
    assert words in caught.value.message


def test_a_late_program_is_killed_with_what_it_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with pytest.raises(MpsError, match=r"no answer within 0.5 s: sh -c"):
        run(["sh", "-c", f"sleep 600 & echo $! > {pid}; wait"], 0.5)
    stat = Path(f"/proc/{pid.read_text().strip()}/stat")
    deadline = time.monotonic() + 60
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.01)
