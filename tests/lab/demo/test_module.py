"""The demo waits for its kernel module where it is needed, and not before."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pytest

from lab.demo.__main__ import hand_over_module
from lab.demo.screen import DemoFailed, Screen

if TYPE_CHECKING:
    from pathlib import Path

    from lab.nodes import Node

PLAN = {"plans": [{"items": [{"action": "stage", "to": "7b4f3c067dac"}]}]}


@dataclass(frozen=True)
class Place:
    """What is asked of a node: where its files are, and its kernel."""

    root: Path
    kernel_release: str = "6.1-2-amd64"


@pytest.fixture
def screen(tmp_path: Path) -> Screen:
    """Return a screen whose `grapnel plan` lets the compilation end: one that is waited for earlier never does."""
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(PLAN))
    program = tmp_path / "bin" / "grapnel"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/planned\ncat {plan}\n")
    program.chmod(0o755)
    return Screen(tmp_path, {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"})


def compiling(folder: Path, then: str) -> subprocess.Popen[str]:
    wait = 'until [ -e "$1" ]; do sleep 0.02; done; '
    argv = ["sh", "-c", wait + then, "sh", str(folder / "planned"), str(folder / "built.dkms.tar.gz")]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def test_the_module_that_is_compiled_meanwhile_is_handed_over(
    screen: Screen, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = Place(tmp_path / "node")

    hand_over_module(screen, cast("Node", node), compiling(tmp_path, 'echo module > "$2"; echo "$2"'))

    incoming = node.root / "var/lib/grapnel/driver/incoming/7b4f3c067dac/modules/6.1-2-amd64.tar.gz"
    assert incoming.read_text() == "module\n"
    assert "what follows waits for it" in capsys.readouterr().out


def test_a_module_that_does_not_compile_ends_the_demo(screen: Screen, tmp_path: Path) -> None:
    with pytest.raises(DemoFailed, match=r"lab\.modules trixie 550\.163\.01 ended with 3"):
        hand_over_module(screen, cast("Node", Place(tmp_path)), compiling(tmp_path, "exit 3"))
