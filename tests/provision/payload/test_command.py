"""The command prints where the archives are, or a message with a hint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.planning.supply.payload.__main__ import main
from tests.provision.payload.checkouts import make_checkout, make_installer

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def environment(tmp_path: Path) -> dict[str, str]:
    uv = make_installer(tmp_path)
    return {"UV": str(uv), "PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_build_prints_the_archives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = make_checkout(tmp_path / "checkout")

    code = main(["build", "--source", str(source), "--output", str(tmp_path / "out")], environment(tmp_path))

    printed = capsys.readouterr().out.splitlines()
    assert code == 0
    assert sorted(printed) == sorted(str(path) for path in (tmp_path / "out").glob("*.tar"))
    assert len(printed) == 3


def test_a_failure_is_a_message_and_a_hint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["build", "--source", str(tmp_path / "nothing")], environment(tmp_path))

    assert code == 1
    assert capsys.readouterr().err == (
        f"error: {tmp_path}/nothing/runtime_hook does not exist\n"
        "  hint: build the payload from a complete checkout, or from an installed grapnel\n"
    )
