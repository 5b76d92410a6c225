"""The virtual environment of a checkout, made by uv from pinned wheels in the cache: a second or two when warm."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lab.machine.folders import cache_dir, content_key

if TYPE_CHECKING:
    from lab.setup.progress import Progress

REQUIREMENTS = Path("requirements/dev.txt")
BOOTSTRAP = Path("requirements/bootstrap.txt")
VENV = Path(".venv")
PROJECT = Path("pyproject.toml")
STARTED_OFTEN = ("ansible", "ansible_runner", "jinja2", "yaml")


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
    progress.run("make an environment for uv", [sys.executable, "-m", "venv", str(partial)])
    pip = [str(partial / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    progress.run("install uv", [*pip, "--require-hashes", "-r", str(BOOTSTRAP)])
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
        progress.run("make .venv", [str(uv), "venv", "-q", "--python", sys.executable, str(VENV)])
        pip, inside = [str(uv), "pip"], {"VIRTUAL_ENV": str(VENV)}
        progress.run(
            "install pinned Python packages", [*pip, "sync", "--require-hashes", str(REQUIREMENTS)], env=inside
        )
        own = ["install", "--no-deps", "--no-build-isolation", "--editable", "."]  # for the command `grapnel`
        progress.run("install grapnel from this checkout", [*pip, *own], env=inside)
        compile_packages(progress)
        stamp.write_text(key)
    progress.say(f"python environment: {VENV} (Python {sys.version.split()[0]})")
    return VENV / "bin"


def compile_packages(progress: Progress) -> None:
    """Compile what is started a thousand times: uv does not, and PYTHONDONTWRITEBYTECODE keeps Python from it.

    Two seconds of CPU once, and four tenths less at each start of Ansible.
    """
    packages = (str(path) for name in STARTED_OFTEN for path in VENV.glob(f"lib/python*/site-packages/{name}"))
    progress.run("compile Ansible", [str(VENV / "bin" / "python"), "-m", "compileall", "-q", *packages])
