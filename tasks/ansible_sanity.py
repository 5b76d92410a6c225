"""Runs Ansible's own sanity tests on the collection: half a minute, so not again for what has passed.

ansible-test wants the collection in a folder of its name, and makes virtual environments of its own. It loads pip for
them from an address that not every network lets through: it is given the pip that Python itself comes with.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from lab.machine.folders import cache_dir
from tasks.passed import run_unless_passed, tracked

COLLECTION = Path("playbooks")
TESTED = (str(COLLECTION), "requirements/dev.txt", "tasks/ansible_sanity.py")
BOOTSTRAP = "get_pip_24_2.py"  # as ansible-test of ansible-core 2.19 names it
PIP = "import ensurepip\nensurepip.bootstrap(upgrade=True)\n"
# Ruff and mypy check more than pylint would.
COMMAND = ("ansible-test", "sanity", "--color", "no", "--skip-test", "pylint", "--python")


def main() -> int:
    """Return the exit status of ansible-test, or 0 if the same files have passed before."""
    return run_unless_passed("ansible-sanity", TESTED, _test)


def _test() -> int:
    home = cache_dir() / "ansible-test"
    bootstrap = home / ".ansible/test/cache" / BOOTSTRAP
    bootstrap.parent.mkdir(parents=True, exist_ok=True)
    bootstrap.write_text(PIP)
    with tempfile.TemporaryDirectory(prefix="grapnel-sanity-") as folder:
        copy = Path(folder, "ansible_collections/grapnel/node")
        for path in tracked(str(COLLECTION)):
            place = copy / path.relative_to(COLLECTION)
            if "collections" not in place.relative_to(copy).parts:
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, place)
        argv = [*COMMAND, f"{sys.version_info.major}.{sys.version_info.minor}"]
        return subprocess.run(argv, cwd=copy, env=os.environ | {"HOME": str(home)}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
