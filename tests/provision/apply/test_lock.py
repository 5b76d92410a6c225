from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from provision.apply.errors import LockedError
from provision.apply.interrupt import cancel_on_signals
from provision.apply.lock import APPLY_VARIABLE, Claim, applies_folder, lock_machines

if TYPE_CHECKING:
    from collections.abc import Iterator

HOLD = """
import os, subprocess, sys
from provision.apply.lock import Claim, lock_machines
machines = {name: [spelling] for name, spelling in (one.split("=") for one in sys.argv[1:])}
claim = Claim("/srv/theirs", machines, "ada@laptop")
with lock_machines(claim, os.environ) as environment:
    child = subprocess.Popen(["sleep", "60"], env=environment, stdout=subprocess.DEVNULL)
    print(child.pid, flush=True)
    sys.stdin.read()
    child.kill()
"""


@pytest.fixture
def state(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path)}


@contextmanager
def apply_of(state: dict[str, str], *machines: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run an apply of these machines ("n1=10.0.0.1:22") in a process of its own; gives it and a child that it began."""
    command = [sys.executable, "-c", HOLD, *machines]
    with subprocess.Popen(
        command, env={**os.environ, **state}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
def test_an_apply_of_a_machine_that_another_inventory_has_too_is_turned_away(state: dict[str, str]) -> None:
    began = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
    with apply_of(state, "n1=10.0.0.1:22", "n2=10.0.0.2:22") as (other, _):
        ours = Claim("/srv/ours", {"n0": ["10.0.0.7:22"], "first": ["gpu-1:22", "10.0.0.1:22"]})
        message = (
            rf"^first is being changed by process {other.pid} of ada@laptop since {began} \(inventory /srv/theirs\)$"
        )
        with pytest.raises(LockedError, match=message), lock_machines(ours, state):
            pytest.fail("both have the machine")


@pytest.mark.slow
def test_an_apply_of_other_machines_goes_on_beside_it(state: dict[str, str]) -> None:
    with apply_of(state, "n1=10.0.0.1:22") as (other, child):
        with lock_machines(Claim("/srv/theirs", {"n1": ["10.0.0.1:2222"], "n2": ["10.0.0.2:22"]}), state):
            assert other.poll() is None
        assert is_running(child)


@pytest.mark.slow
def test_of_several_machines_one_is_named_and_the_others_are_counted(state: dict[str, str]) -> None:
    with (
        apply_of(state, "a=h1:22", "b=h2:22"),
        pytest.raises(LockedError, match=r"^n1 and 1 more are being changed by"),
        lock_machines(Claim("ours", {"n1": ["h1:22"], "n2": ["h2:22"], "n3": ["h3:22"]}), state),
    ):
        pytest.fail("both have the machines")


@pytest.mark.slow
def test_an_apply_that_was_killed_blocks_nobody_and_what_it_left_is_ended(state: dict[str, str]) -> None:
    with apply_of(state, "n1=10.0.0.1:22", "n2=10.0.0.2:22") as (other, child):
        other.kill()
        other.wait()
        assert is_running(child)
        with lock_machines(Claim("ours", {"n3": ["10.0.0.3:22"]}), state):
            assert is_running(child), "it works on none of these machines"
        with lock_machines(Claim("ours", {"second": ["10.0.0.2:22"]}), state):
            assert not is_running(child)


def test_an_apply_that_ends_leaves_no_file(state: dict[str, str]) -> None:
    def fail() -> None:
        with lock_machines(Claim("ours", {"n1": ["h1:22"]}), state) as environment:
            assert Path(environment[APPLY_VARIABLE]).is_file()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [path.name for path in applies_folder(state).iterdir()] == ["lock"]


@pytest.mark.slow
def test_an_apply_of_an_earlier_release_says_less(state: dict[str, str]) -> None:
    with apply_of(state, "n1=h1:22") as (other, _):
        (path,) = applies_folder(state).glob("*.apply")
        path.write_text(json.dumps({"pid": other.pid, "inventory": "theirs", "machines": ["h1:22"]}))
        message = rf"^n1 is being changed by process {other.pid} \(inventory theirs\)$"
        with pytest.raises(LockedError, match=message), lock_machines(Claim("ours", {"n1": ["h1:22"]}), state):
            pytest.fail("both have the machine")


def test_a_file_that_was_cut_off_blocks_nobody(state: dict[str, str]) -> None:
    claim = Claim("ours", {"n1": ["h1:22"]})
    applies_folder(state).mkdir(parents=True)
    (applies_folder(state) / f"{claim.key}.apply").write_text('{"pid":')

    with lock_machines(claim, state) as environment:
        assert environment[APPLY_VARIABLE].endswith(f"{claim.key}.apply")


def test_the_same_machines_have_the_same_key_whatever_they_are_called() -> None:
    one = Claim("a", {"n1": ["h1:22"], "n2": ["h2:22", "10.0.0.2:22"]})

    assert one.key == Claim("b", {"x": ["h2:22"], "y": ["h1:22"]}).key
    assert one.key != Claim("a", {"n1": ["h1:22"]}).key


def test_a_fleet_of_thousands_is_kept_apart_as_well(state: dict[str, str]) -> None:
    fleet = {
        f"n{number}": [f"n{number}.example.org:22", f"10.1.{number >> 8}.{number & 255}:22"] for number in range(5000)
    }
    with (
        lock_machines(Claim("ours", fleet), state),
        pytest.raises(LockedError, match="last is being changed"),
        lock_machines(Claim("ours", {"last": ["10.1.19.135:22"]}), state),
    ):
        pytest.fail("both have the machine")


def test_a_state_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "grapnel").write_text("in the way")
    with (
        pytest.raises(LockedError, match=r"the locks of applies in .*: not a directory"),
        lock_machines(Claim("ours", {}), {"XDG_STATE_HOME": str(tmp_path)}),
    ):
        pytest.fail("there is no lock")


def test_every_session_of_a_user_has_the_same_folder(tmp_path: Path) -> None:
    expected = tmp_path / ".local" / "state" / "grapnel" / "applies"
    for session in ({}, {"XDG_RUNTIME_DIR": "/run/user/0"}):
        assert applies_folder({"HOME": str(tmp_path), **session}) == expected


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_cancel_instead_of_killing(number: signal.Signals) -> None:
    assert threading.current_thread() is threading.main_thread()
    before = signal.getsignal(number)
    with cancel_on_signals() as cancel:
        os.kill(os.getpid(), number)
        assert cancel.wait(timeout=20)
    assert signal.getsignal(number) == before
