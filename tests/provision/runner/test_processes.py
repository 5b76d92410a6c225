from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from typing import TYPE_CHECKING

import pytest

from provision.apply.runner.ansible import INSTALLED, find_collection
from provision.apply.runner.processes import end_processes, find_processes

if TYPE_CHECKING:
    from pathlib import Path

STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("new_session", [False, True], ids=["in the session", "in a session of its own"])
def test_marked_process_that_ignores_sigterm_is_ended(*, new_session: bool) -> None:
    value = uuid.uuid4().hex
    with subprocess.Popen(
        [sys.executable, "-c", STUBBORN],
        env={"MARK": value},
        stdout=subprocess.PIPE,
        start_new_session=new_session,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert find_processes("MARK", value) == [process.pid]
        assert end_processes("MARK", value, grace_s=0.1) == 1
        assert process.poll() == -9, "it still has its files and its locks"
    assert find_processes("MARK", value) == []


@pytest.mark.slow
def test_a_process_that_is_about_to_end_is_waited_for() -> None:
    """It has no environment any more while its memory, and then its files, are given back."""
    value = uuid.uuid4().hex
    large = "x = bytearray(b'x') * (128 << 20); print('up', flush=True); import signal; signal.pause()"
    with subprocess.Popen([sys.executable, "-c", large], env={"MARK": value}, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert end_processes("MARK", value, grace_s=20) == 1
        assert process.poll() == -15


def test_a_process_that_just_begins_its_program_is_found(tmp_path: Path) -> None:
    """Between the end of the old program's memory and the new one's, there is nothing to read of either."""
    entry = tmp_path / "101"
    entry.mkdir()
    (entry / "exe").symlink_to("/usr/bin/sleep")
    (entry / "environ").touch()
    (entry / "cmdline").write_bytes(b"sleep\0")
    (entry / "stat").write_text(f"101 (sleep) R 1 {'0 ' * 50}")

    def has_begun() -> None:
        (entry / "environ").write_bytes(b"MARK=x\0")
        (entry / "next").write_text(f"101 (sleep) S 1 {'7 ' * 50}")
        (entry / "next").replace(entry / "stat")

    begun = threading.Timer(0.1, has_begun)
    begun.start()
    assert find_processes("MARK", "x", tmp_path) == [101]
    begun.join()


@pytest.mark.parametrize("why", ["a kernel's thread", "begins for ever"])
def test_what_has_no_environment_is_passed_over(tmp_path: Path, why: str) -> None:
    entry = tmp_path / "101"
    entry.mkdir()
    (entry / "environ").touch()
    (entry / "stat").write_text(f"101 (x) R 1 {'0 ' * 50}")
    if why == "begins for ever":
        (entry / "exe").symlink_to("/usr/bin/sleep")
    assert find_processes("MARK", "x", tmp_path) == []


def test_without_proc_nothing_is_found(tmp_path: Path) -> None:
    assert find_processes("MARK", "x", tmp_path / "none") == []


@pytest.mark.parametrize("where", ["checkout", "wheel"])
def test_collection_is_found(tmp_path: Path, where: str) -> None:
    package = tmp_path / "provision"
    root = tmp_path / "playbooks" if where == "checkout" else package / INSTALLED
    root.mkdir(parents=True)
    (root / "galaxy.yml").touch()
    assert find_collection(package) == root


def test_no_collection(tmp_path: Path) -> None:
    assert find_collection(tmp_path) is None


def test_shared_ssh_connections_are_left_alone(tmp_path: Path) -> None:
    for pid, title in (
        ("101", b"ssh\0-o\0ControlPersist=60s\0n1\0"),
        ("102", b"ssh: /root/.ansible/cp/8f2a [mux]\0\0"),
    ):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "environ").write_bytes(b"HOME=/root\0MARK=x\0")
        (tmp_path / pid / "cmdline").write_bytes(title)
    assert find_processes("MARK", "x", tmp_path) == [101]
    assert find_processes("MARK", "y", tmp_path) == []
