"""The program that Docker starts for ``--gpus``, run by a shell."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from provision.planning.engines.docker import render_gpus_program

if TYPE_CHECKING:
    from pathlib import Path

SAYS = """#!/bin/sh
echo {name} "$@"; env | cut -d= -f1 | grep -E 'PATH|SECRET|LC_ALL' | sort
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The program with a hook that says how it was started; NVIDIA's is not installed."""
    return write(
        tmp_path / "program", render_gpus_program(hook=str(write_hook(tmp_path, "hook")), theirs=str(tmp_path / "own"))
    )


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def write_hook(folder: Path, name: str) -> Path:
    return write(folder / name, SAYS.format(name=name))


def call(program: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Start it with dockerd's environment."""
    environment = {"PATH": "/usr/bin:/bin", "SECRET": "x", "LD_LIBRARY_PATH": "/opt"}
    return subprocess.run([program, *words], env=environment, capture_output=True, text=True, timeout=30, check=False)


def test_it_becomes_the_hook_without_dockers_environment(program: Path) -> None:
    assert call(program, "prestart").stdout.splitlines() == ["hook prestart --entitlement gpus", "LC_ALL", "PATH"]


def test_nvidias_own_program_goes_first_and_hears_everything(program: Path) -> None:
    write_hook(program.parent, "own")
    assert call(program, "-debug", "poststop").stdout.splitlines()[0] == "own -debug poststop"


def test_a_link_of_nvidias_name_to_ours_is_no_ring(program: Path) -> None:
    (program.parent / "own").symlink_to(program)
    assert call(program, "prestart").stdout.startswith("hook prestart")


@pytest.mark.parametrize("words", [[], ["poststop"], ["--version"]], ids=str)
def test_whatever_else_it_is_asked_it_says_whose_it_is(program: Path, words: list[str]) -> None:
    done = call(program, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "this is grapnel's, for docker run --gpus" in done.stderr
