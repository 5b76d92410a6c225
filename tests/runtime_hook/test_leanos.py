"""The stand-in for os answers as os does, and becomes os when it is asked for more."""

from __future__ import annotations

import subprocess

import pytest

from tests.runtime_hook.containers import REPOSITORY

PRELUDE = f"""
import sys
sys.path.insert(0, {str(REPOSITORY)!r})
from runtime_hook.leanos import install
import os
lean = os
has_os = lambda: "_collections_abc" in sys.modules
"""


def say(lines: str) -> str:
    """Run lines where nothing has imported os yet; return what they print."""
    argv = ["/usr/bin/python3", "-IS", "-c", PRELUDE + lines]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize(
    "expression",
    [
        'os.path.join("a", "b")',
        'os.path.realpath("/usr/../usr")',
        'os.fsencode("a\\udcff")',
        "os.strerror(2)",
        'os.stat("/").st_ino',
        "os.makedev(4, 16)",
        "os.O_PATH",
        "os.uname().machine",
    ],
)
def test_what_the_hot_paths_use_is_there_and_the_same(expression: str) -> None:
    same = f"print(has_os()); mine = {expression}; print(has_os()); del sys.modules['os']; import os; "
    assert say(f"{same}print(mine == {expression})").split() == ["False", "False", "True"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        pytest.param('type(os.environ["PATH"]).__name__', "str", id="the environment is text"),
        pytest.param("__import__('argparse').ArgumentParser(prog='p').prog", "p", id="argparse"),
        pytest.param("__import__('tempfile').gettempprefix()", "tmp", id="tempfile"),
        pytest.param("os.fsdecode(b'a')", "a", id="its Python half"),
        pytest.param("hasattr(os, 'nonsense')", "False", id="a name that os has not"),
    ],
)
def test_whatever_else_is_asked_for_comes_from_os_itself(expression: str, answer: str) -> None:
    assert say(f"print({expression}, has_os(), lean.makedirs is sys.modules['os'].makedirs)") == f"{answer} True True"


def test_an_os_that_is_there_stays() -> None:
    assert say("print(lean is os)") == "True"
    again = "del sys.modules['os']; import os as real; install(); import os; print(os is real)"
    assert say(again) == "True"
