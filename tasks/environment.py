"""The virtual environment of a checkout, made by uv from pinned wheels in the cache: a second or two when warm."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lab.machine.folders import cache_dir, content_key
from tasks.stage import Stage, run_in_turn

if TYPE_CHECKING:
    from tasks.progress import Progress

REQUIREMENTS = Path("requirements/dev.txt")
BOOTSTRAP = Path("requirements/bootstrap.txt")
VENV = Path(".venv")
PROJECT = Path("pyproject.toml")


def python_tag() -> str:
    """Return what makes two interpreters interchangeable for an environment: path and version."""
    return f"{os.path.realpath(sys.executable)} {sys.version}"


def uv_path(progress: Progress) -> Path:
    """Return the pinned uv, installed once into the cache with its hash checked."""
    home = cache_dir() / f"uv-{content_key(BOOTSTRAP.read_bytes(), python_tag())}"
    uv = home / "bin" / "uv"
    if uv.exists():
        return uv
    partial = home.with_suffix(f".partial-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    pip = (str(partial / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check")
    run_in_turn(
        [
            Stage("make an environment for uv", (sys.executable, "-m", "venv", str(partial))),
            Stage("install uv", (*pip, "--require-hashes", "-r", str(BOOTSTRAP))),
        ],
        progress,
    )
    partial.rename(home)
    return uv


def make_environment(progress: Progress) -> Path:
    """Bring ``.venv`` to exactly the pinned set; return its bin folder. Nothing is done if it already is."""
    uv = uv_path(progress)
    os.environ["UV"] = str(uv)  # the payload step installs the daemon's libraries with the same one
    stamp = VENV / "grapnel-key"
    key = content_key(REQUIREMENTS.read_bytes(), PROJECT.read_bytes(), python_tag())
    if not (stamp.exists() and stamp.read_text() == key):
        shutil.rmtree(VENV, ignore_errors=True)
        inside = {"VIRTUAL_ENV": str(VENV)}
        sync = ("pip", "sync", "--require-hashes", str(REQUIREMENTS))
        own = ("pip", "install", "--no-deps", "--no-build-isolation", "--editable", ".")  # for the command `grapnel`
        run_in_turn(
            [
                Stage("make .venv", (str(uv), "venv", "-q", "--python", sys.executable, str(VENV))),
                Stage("install pinned Python packages", (str(uv), *sync), inside),
                Stage("install grapnel from this checkout", (str(uv), *own), inside),
            ],
            progress,
        )
        stamp.write_text(key)
    progress.say(f"python environment: {VENV} (Python {sys.version.split()[0]})")
    return VENV / "bin"
