"""promtool out of a package; the package itself is apt's business."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from lab.machine.errors import CommandError
from lab.tools import promtool

if TYPE_CHECKING:
    from pathlib import Path


def package(folder: Path, *programs: str) -> Path:
    """Make a package of scripts."""
    control = folder / "tree/DEBIAN/control"
    control.parent.mkdir(parents=True)
    control.write_text("Package: prometheus\nVersion: 1\nArchitecture: all\nMaintainer: nobody\nDescription: x\n")
    for name in programs:
        program = folder / "tree/usr/bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    deb = folder / "prometheus_1_all.deb"
    subprocess.run(["dpkg-deb", "--build", str(folder / "tree"), str(deb)], check=True, capture_output=True)
    return deb


def test_nothing_but_promtool_is_taken_out_of_the_package(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    promtool.unpack(package(tmp_path, "prometheus", "promtool"), folder)
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["promtool"]


def test_a_package_without_promtool_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="failed"):
        promtool.unpack(package(tmp_path, "prometheus"), tmp_path)


def test_the_one_in_the_cache_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    assert promtool.find() is None
    kept = tmp_path / "grapnel/promtool/promtool"
    kept.parent.mkdir(parents=True)
    kept.touch()
    assert promtool.find() == kept
    assert promtool.ensure() == kept
