"""Installs the daemon's libraries for a Python that this machine need not have: pinned wheels, checked by hash, cached.

The only place of this part that runs programs: uv, or pip where there is no uv.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from provision.planning.architecture import X86_64
from provision.planning.supply.payload.errors import PayloadError

if TYPE_CHECKING:
    from collections.abc import Mapping

_TIMEOUT_S = 600
_LAYOUT = "1"  # of the cache; another one when the installers' options change
# The oldest C library among the supported distributions is newer than this one.
_UV_PLATFORM = "{}-manylinux_2_28"
_PIP_PLATFORMS = ("manylinux_2_28_{}", "manylinux_2_17_{}", "manylinux2014_{}", "any")
_LAST_LINES = 5


class Libraries(Protocol):
    """Whatever can provide the daemon's libraries."""

    def site(self, python: str) -> Path:
        """Return a folder with the libraries for one Python, "major.minor"; raises `PayloadError`."""


@dataclass(frozen=True)
class CachedLibraries:
    """Libraries installed once for each set of requirements and Python version; none is compiled for it alone."""

    requirements: Path
    cache: Path
    environment: Mapping[str, str]
    architecture: str = X86_64.name  # of what is compiled in them, if anything is

    def site(self, python: str) -> Path:
        """Return the folder, which is there only when it is complete."""
        digest = hashlib.sha256(self.requirements.read_bytes() + f"{_LAYOUT} {python}".encode()).hexdigest()
        suffix = "" if self.architecture == X86_64.name else f"-{self.architecture}"
        folder = self.cache / f"site-{python}-{digest[:16]}{suffix}"
        if folder.is_dir():
            return folder
        self.cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.cache, prefix=f".{folder.name}-") as temporary:
            target = Path(temporary) / "site"
            command = install_command(self.requirements, target, python, self.environment, self.architecture)
            _run(command, self.environment)
            if not folder.is_dir():  # somebody else may have been faster
                target.rename(folder)
        return folder


def install_command(
    requirements: Path, target: Path, python: str, environment: Mapping[str, str], architecture: str = X86_64.name
) -> list[str]:
    """Return the command that installs the libraries; raises `PayloadError` where neither uv nor pip is."""
    common = ["--target", str(target), "--python-version", python, "--only-binary", ":all:", "--require-hashes"]
    uv = environment.get("UV") or shutil.which("uv", path=environment.get("PATH"))
    if uv:
        install = [uv, "pip", "install", "--quiet", "--python-platform", _UV_PLATFORM.format(architecture)]
        return [*install, *common, "-r", str(requirements)]
    platforms = [word for each in _PIP_PLATFORMS for word in ("--platform", each.format(architecture))]
    quiet = ["install", "--quiet", "--disable-pip-version-check", "--implementation", "cp"]
    return [*_pip(environment), *quiet, *platforms, *common, "-r", str(requirements)]


def _pip(environment: Mapping[str, str]) -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip3", path=environment.get("PATH"))
    if found is None:
        raise PayloadError(
            "the node daemon's libraries cannot be installed: there is neither uv nor pip",
            hint="install uv, or name it in the environment variable UV",
        )
    return [found]


def _run(command: list[str], environment: Mapping[str, str]) -> None:
    """Run an installer; its own last words are part of the error, and the command can be pasted."""
    shown = shlex.join(command)
    try:
        done = subprocess.run(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise PayloadError(f"not finished after {_TIMEOUT_S} s: {shown}", hint="is the package index slow?") from error
    except OSError as error:
        raise PayloadError(
            f"{command[0]} cannot be run: {os.strerror(error.errno or 0).lower()}", hint=shown
        ) from error
    if done.returncode:
        words = " / ".join(done.stdout.strip().splitlines()[-_LAST_LINES:])
        raise PayloadError(f"exit status {done.returncode}: {words}", hint=f"try by hand: {shown}")
