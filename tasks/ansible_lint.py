"""Lints the collection: a quarter of a minute, so not again for what has passed."""

from __future__ import annotations

import subprocess
import sys

from tasks.passed import run_unless_passed

LINTED = ("playbooks", ".ansible-lint", "ansible.cfg", "requirements/dev.txt")
COMMAND = ("ansible-lint", "--offline", "-q", "playbooks")


def main() -> int:
    """Return the exit status of ansible-lint, or 0 if the same files have passed before."""
    return run_unless_passed("ansible-lint", LINTED, lambda: subprocess.run(COMMAND, check=False).returncode)


if __name__ == "__main__":
    sys.exit(main())
