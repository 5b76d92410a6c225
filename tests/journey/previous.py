"""The release of grapnel before this one, as a checkout with the archives that nodes get.

Its hook and daemon always differ from this one's, by a comment at least, so that both are deployed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.former import extract
from tests.journey.conftest import Controller

if TYPE_CHECKING:
    from pathlib import Path

_MAIN = "import sys; from provision.cli import main; sys.exit(main())"
_DIFFERING = ("plugin/__init__.py", "runtime_hook/__init__.py")


def check_out(folder: Path) -> Path:
    """Make a checkout of that release in a folder, with its payload in ``dist/payload``."""
    extract(folder)
    for path in _DIFFERING:
        with (folder / path).open("a", encoding="utf-8") as source:
            source.write("\n# the release before\n")
    command = [sys.executable, "-P", "-m", "provision.payload", "build", "--output", str(folder / "dist/payload")]
    subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)}, check=True, capture_output=True)
    return folder


@dataclass(frozen=True)
class FormerController(Controller):
    """The operator's folder, with the commands of the release before."""

    checkout: Path

    def environment(self) -> dict[str, str]:
        """Return the environment in which its package and its archives are found first."""
        own = {"PYTHONPATH": str(self.checkout), "GRAPNEL_PAYLOAD": str(self.checkout / "dist" / "payload")}
        return {**super().environment(), **own}

    def grapnel(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run that release's ``grapnel``, to which nodes are named by an option."""
        words = (word if word.startswith("-") else f"--limit={word}" for word in argv[1:])
        return self.run(sys.executable, "-P", "-c", _MAIN, argv[0], "-i", "inventory.yaml", *words)
