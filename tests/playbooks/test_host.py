"""Commands on the machine: what runs out of time is ended with everything that it has started."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import run_command

PATIENCE_S = 20.0


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that waits to be collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def pids_in(place: Path) -> list[int]:
    return [int(word) for word in place.read_text().split()]


def test_a_command_that_hangs_leaves_no_process_behind(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 1000 & echo $! $$ > {pids}; echo Get:1 http://mirror.invalid; echo slow >&2; wait"

    done = run_command(["sh", "-c", script], 1.0)

    assert (done.return_code, done.stdout) == (124, "Get:1 http://mirror.invalid\n")
    assert done.stderr == "slow\nsh took longer than 1 s"
    deadline = time.monotonic() + PATIENCE_S
    while any(map(is_alive, pids_in(pids))) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_alive, pids_in(pids)))


def test_a_command_cannot_ask_at_a_terminal() -> None:
    done = run_command(["sh", "-c", "exec < /dev/tty"], 10.0)

    assert done.return_code
    assert "/dev/tty" in done.stderr


@pytest.mark.parametrize(("words", "code"), [(["true"], 0), (["sh", "-c", "exit 7"], 7), (["no-such-command-"], 127)])
def test_a_command_tells_how_it_ended(words: list[str], code: int) -> None:
    assert run_command(words, 10.0).return_code == code
