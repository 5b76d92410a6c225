"""The launcher finds its own release, whatever surrounds it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from plugin import __version__

REPOSITORY = Path(__file__).parents[2]


def unpack(release: Path) -> Path:
    """Lay a release out as the payload does."""
    shutil.copytree(REPOSITORY / "plugin", release / "plugin", ignore=shutil.ignore_patterns("__pycache__"))
    (release / "site").mkdir()
    shutil.copy(REPOSITORY / "plugin/launcher.py", release / "grapnel-node")
    return release / "grapnel-node"


@pytest.mark.slow
def test_the_release_behind_the_link_is_used_and_nothing_else(tmp_path: Path) -> None:
    unpack(tmp_path / "releases/node-1")
    (tmp_path / "node").symlink_to("releases/node-1")
    (tmp_path / "plugin").mkdir()
    (tmp_path / "plugin/__init__.py").write_text("raise SystemExit('the working directory was used')")
    done = subprocess.run(
        [sys.executable, "-IS", str(tmp_path / "node/grapnel-node"), "--version"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"grapnel-node {__version__}\n"


def test_the_launcher_is_executable_and_isolated() -> None:
    launcher = REPOSITORY / "plugin/launcher.py"
    assert launcher.stat().st_mode & 0o111
    assert launcher.read_text().startswith("#!/usr/bin/python3 -IS\n")
