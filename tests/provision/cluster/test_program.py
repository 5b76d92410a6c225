"""Programs of a site: real ones, with limits on their time and output."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from provision.cluster.schedulers.program import MAX_ERRORS, Program, Ran

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


def run(code: str, *, timeout_s: float = 60.0, limit_bytes: int = 1000) -> Ran:
    program = Program(
        timeout_s=timeout_s, limit_bytes=limit_bytes, environ={"PATH": os.environ["PATH"], "GIVEN": "yes"}
    )
    return program.run([sys.executable, "-I", "-c", code])


def test_output_errors_and_exit_code_are_told() -> None:
    ran = run("import os, sys; print(os.environ['GIVEN']); print('two\\nlines', file=sys.stderr); sys.exit(3)")

    assert ran == Ran(code=3, output=b"yes\n", errors="two\nlines\n")
    assert ran.complaint == "exit code 3: two lines"


def test_a_program_without_an_end_is_killed_with_what_it_started(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    start = f"import subprocess, time; subprocess.Popen(['sleep', '1000'], stdout=open({str(fifo)!r}, 'w')); "

    ran = run(f"{start}time.sleep(1000)", timeout_s=2.0)

    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b"", "whoever had it open is gone"
    os.close(reader)
    assert ran.complaint == "no answer within 2 s"


def test_what_stays_in_the_background_is_not_waited_for() -> None:
    ran = run("import subprocess; print('done', flush=True); subprocess.Popen(['sleep', '3'])")

    assert ran == Ran(code=0, output=b"done\n")


def test_more_output_than_allowed_is_a_failure() -> None:
    assert run("print('x' * 5000)").complaint == "it printed more than 1000 bytes"
    assert run("while True: print('x' * 5000)").complaint == "it printed more than 1000 bytes"


def test_a_program_that_prints_errors_without_end_is_killed_when_its_time_is_up() -> None:
    ran = run("import sys\nwhile True: print('x' * 5000, file=sys.stderr)", timeout_s=1.0)

    assert ran.complaint == "no answer within 1 s"


def test_errors_are_cut() -> None:
    ran = run("import sys; print('x' * 500000, file=sys.stderr)")

    assert ran.code == 0
    assert len(ran.errors) <= MAX_ERRORS


def test_a_program_that_a_signal_ends_is_told() -> None:
    assert run("import os; os.kill(os.getpid(), 9)").complaint == "ended by signal 9"


def test_a_program_that_is_not_there_is_told() -> None:
    program = Program(timeout_s=1.0, limit_bytes=10, environ={})
    assert program.run(["/nonexistent/scontrol"]).complaint == "it cannot be started: No such file or directory"


def test_what_it_says_moves_no_cursor() -> None:
    assert Ran(code=1, errors="\x1b[2Jgone").complaint == "exit code 1: \\x1b[2Jgone"
