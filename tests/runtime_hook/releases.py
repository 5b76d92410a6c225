"""An installed hook: the package and its launcher in a folder of their own, as the collection unpacks a release."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.runtime_hook.containers import REPOSITORY

PYTHON = "/usr/bin/python3"


def install_release(folder: Path, *, packed: bool = True, python: str = PYTHON) -> Path:
    """Install the hook of this checkout for an interpreter, compiled as on a node; return the launcher."""
    source = REPOSITORY / "runtime_hook"
    shutil.copytree(source, folder / "runtime_hook", ignore=shutil.ignore_patterns("__pycache__", "launcher.py"))
    launcher = folder / "grapnel-hook"
    launcher.write_text((source / "launcher.py").read_text().replace(PYTHON, python, 1))
    launcher.chmod(0o755)
    options = ["-q", "--invalidation-mode", "unchecked-hash"]
    subprocess.run([python, "-IS", "-m", "compileall", *options, str(folder)], check=True)
    if packed:
        pack(launcher, python)
    return launcher


def pack(launcher: Path, python: str = PYTHON) -> Path:
    """Pack a release; return the pack."""
    done = subprocess.run([python, "-IS", launcher, "pack"], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())
