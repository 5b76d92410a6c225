"""Messages about a missing or outdated Go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab.golang import programs
from lab.golang.errors import GolangError
from lab.golang.toolchain import environment, find_toolchain, is_older

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.golang.conftest import FakeGo

PROGRAM = programs.containerd()  # its go.mod says 1.24.3


@pytest.mark.parametrize(
    ("found", "wanted", "older"),
    [
        ("go1.26.8", "1.26.8", False),
        ("go1.26.10", "1.26.8", False),
        ("go1.26.7", "1.26.8", True),
        ("go1.9", "1.26.8", True),
        ("go1.27rc1", "1.26.8", False),
        ("go1.26.8 X:nodwarf5", "1.26.8", False),
        ("devel go1.28-abcdef", "1.26.8", False),
        ("", "1.26.8", False),
    ],
)
def test_versions_of_go_are_compared_by_number(found: str, wanted: str, older: bool) -> None:  # noqa: FBT001  # a table
    assert is_older(found, wanted) is older


def test_a_go_that_is_new_enough_is_taken(go: FakeGo, tmp_path: Path) -> None:
    found = find_toolchain(PROGRAM, tmp_path)
    assert (found.go, found.version, found.architecture) == (str(go.folder / "go"), "go1.26.8", "amd64")


def test_without_go_the_line_says_which_one_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GolangError, match=r"go is not on PATH: containerd 2\.2\.1 is built from source") as caught:
        find_toolchain(PROGRAM, tmp_path)
    assert "install Go 1.24.3 or newer" in caught.value.hint
    assert "GOTOOLCHAIN=auto" in caught.value.hint


def test_a_go_that_is_too_old_is_named_with_both_versions(go: FakeGo, tmp_path: Path) -> None:
    go.answers("go1.19.8")
    with pytest.raises(GolangError, match=r"go/go is go1\.19\.8: containerd 2\.2\.1 needs 1\.24\.3 or newer"):
        find_toolchain(PROGRAM, tmp_path)


def test_a_toolchain_that_cannot_be_fetched_shows_what_go_said(go: FakeGo, tmp_path: Path) -> None:
    go.fails("env", "go: download go1.24.3 for linux/amd64: toolchain not available")
    with pytest.raises(GolangError, match=r"cannot become Go 1\.24\.3") as caught:
        find_toolchain(PROGRAM, tmp_path)
    assert caught.value.hint.endswith("toolchain not available")


def test_a_toolchain_that_was_fetched_is_the_one_that_counts(go: FakeGo, tmp_path: Path) -> None:
    go.answers("go: downloading go1.26.8 (linux/amd64)\ngo1.26.8")
    assert find_toolchain(PROGRAM, tmp_path).version == "go1.26.8"


def test_settings_that_decide_where_modules_come_from_stay_the_person_s() -> None:
    assert not {"GOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE", "GOMODCACHE", "GOTOOLCHAIN"} & environment().keys()
