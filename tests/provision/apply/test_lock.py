from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from provision.apply.errors import LockedError
from provision.apply.interrupt import cancel_on_signals
from provision.apply.lock import hold_lock, lock_path

if TYPE_CHECKING:
    from pathlib import Path

HOLD = """
import sys, time
from pathlib import Path
from provision.apply.lock import hold_lock
with hold_lock(Path(sys.argv[1]), "hosts"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_apply_names_the_first_and_a_killed_one_does_not_block(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "apply.lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with (
            pytest.raises(LockedError, match=f"hosts is being applied by process {other.pid}"),
            hold_lock(path, "hosts"),
        ):
            pass
        other.kill()
    with hold_lock(path, "hosts"):
        assert path.read_text() == f"{os.getpid()}\n"


def test_lock_belongs_to_the_inventory_not_to_its_spelling(tmp_path: Path) -> None:
    environment = {"XDG_RUNTIME_DIR": str(tmp_path)}
    one = lock_path([f"{tmp_path}/hosts"], environment, tmp_path)
    assert one == lock_path([f"{tmp_path}/x/../hosts"], environment, tmp_path)
    assert one != lock_path([f"{tmp_path}/other"], environment, tmp_path)
    assert lock_path(["n1,n2"], environment, tmp_path) != lock_path(["n1,n3"], environment, tmp_path)
    assert one.parent == tmp_path / "grapnel"


def test_lock_of_a_user_without_a_session_lies_in_the_state_folder(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "gone")}
    assert lock_path([], environment, tmp_path).parent == tmp_path / ".local" / "state" / "grapnel"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_cancel_instead_of_killing(number: signal.Signals) -> None:
    assert threading.current_thread() is threading.main_thread()
    before = signal.getsignal(number)
    with cancel_on_signals() as cancel:
        os.kill(os.getpid(), number)
        assert cancel.wait(timeout=20)
    assert signal.getsignal(number) == before
