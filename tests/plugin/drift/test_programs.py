"""Programs that answer, that do not, and that say too much; a lock that somebody has."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from plugin.base.errors import DriftError
from plugin.drift import host
from plugin.drift.host import ask_program
from plugin.drift.packages import package_lock_holder

if TYPE_CHECKING:
    from pathlib import Path

LOCK = """
import fcntl, sys
with open(sys.argv[1], "w") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_an_answer_counts_whatever_the_program_ends_with() -> None:
    assert ask_program(("/bin/sh", "-c", "echo a; exit 1")) == "a\n"


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(DriftError, match="/no/such/program cannot be started: no such file"):
        ask_program(("/no/such/program",))


def test_a_program_that_says_too_much_is_ended() -> None:
    with pytest.raises(DriftError, match="more than 1 MiB"):
        ask_program(("/bin/sh", "-c", "while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done"))


def test_a_program_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_TIMEOUT_S", 0.1)
    with pytest.raises(DriftError, match=r"no answer within 0\.1 s"):
        ask_program(("/bin/sh", "-c", "exec sleep 60"))


def test_who_changes_packages_is_known_and_not_disturbed(tmp_path: Path) -> None:
    lock = tmp_path / "var/lib/dpkg/lock"
    lock.parent.mkdir(parents=True)
    assert package_lock_holder(tmp_path) is None
    with subprocess.Popen(
        [sys.executable, "-c", LOCK, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert package_lock_holder(tmp_path) == process.pid
        process.communicate()
    assert package_lock_holder(tmp_path) is None
