"""The machine's own Go with the flags of the lab, on a program that needs no module."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from lab.golang.build import ensure
from lab.golang.programs import Program

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.functional,
    pytest.mark.skipif(shutil.which("go") is None, reason="no go on PATH"),
]

GO_MOD = "module hyper\n\ngo 1.21\n"
MAIN = """\
package main

import (
	"os"
	"path/filepath"
)

var version = "unset"

func main() {
	os.Stdout.WriteString(filepath.Base(os.Args[0]) + " " + version + "\\n")
}
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    for name, text in {"main.go": MAIN, "go.mod": GO_MOD, "go.sum": ""}.items():
        (tmp_path / name).write_text(text)
    return Program(
        name="small",
        version="1.2.3",
        sources=tuple(tmp_path / name for name in ("main.go", "go.mod", "go.sum")),
        target=".",
        variables={"main.version": "v1.2.3"},
        files=("hyper",),
        links=("role",),
        probe=("role",),
        answer="v1.2.3",
        memory_bytes=0,
        disk_bytes=0,
    )


def test_the_program_is_static_and_answers_by_the_name_it_is_started_under(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = subprocess.run(["go", "env", "GOCACHE"], check=True, capture_output=True, text=True).stdout.strip()
    monkeypatch.setenv("GOCACHE", compiled)  # the standard library is compiled once, not for every run of the tests
    monkeypatch.setenv("GOPROXY", "off")
    monkeypatch.setenv("GOFLAGS", "-mod=vendor -tags=of_somebody")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = ensure(program, print)
    assert subprocess.run([folder / "role"], check=True, capture_output=True, text=True).stdout == "role v1.2.3\n"
    assert b"/ld-linux" not in (folder / "hyper").read_bytes()
    assert str(tmp_path).encode() not in (folder / "hyper").read_bytes()
