"""Which release of grapnel is the one before this one, and its files."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
BEFORE_TAGS = "16455892"


def previous_commit() -> str:
    """Return the release before this one: the newest tag ``v*`` of the history.

    Before there is any, it is `BEFORE_TAGS`: the last commit of which nodes keep no record of what was there before it.
    """
    asked = ["git", "describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD~1"]
    found = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() or BEFORE_TAGS


def has_history() -> bool:
    """Tell whether this checkout has that release; a source archive has none."""
    asked = ["git", "cat-file", "-e", f"{previous_commit()}^{{commit}}"]
    return subprocess.run(asked, cwd=ROOT, capture_output=True, check=False).returncode == 0


def extract(folder: Path, *paths: str) -> Path:
    """Write that release's files, or those below some paths, into a folder."""
    asked = ["git", "archive", previous_commit(), *paths]
    archive = subprocess.run(asked, cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "--extract", "--directory", str(folder)], input=archive, check=True)
    return folder
