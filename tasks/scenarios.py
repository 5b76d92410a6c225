"""Runs the Molecule scenarios of every role, and of all of them, one after the other on the same two nodes.

Molecule remembers across runs that nodes were created and prepared, which is not true after one that was killed. So
what it remembers goes first, and what is left of such nodes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final, NoReturn

SCENARIOS: Final = ("driver", "runtime", "tuning", "kubelet", "node_daemon", "default")  # as a bare node can pass them
SITE: Final = "molecule"  # as in .config/molecule/config.yml


def main() -> NoReturn:
    """Become Molecule, with the scenarios that are named, or all."""
    site = os.environ.get("MOLECULE_SITE", SITE)
    subprocess.run([sys.executable, "-P", "-m", "lab", "destroy", "--site", site], check=True)
    subprocess.run(["molecule", "reset", "--all"], check=True)
    names = (word for name in sys.argv[1:] or SCENARIOS for word in ("--scenario-name", name))
    os.execvp("molecule", ["molecule", "test", "--shared-state", *names])


if __name__ == "__main__":
    main()
