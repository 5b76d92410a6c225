"""Prints headings, and runs commands, as at a terminal."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

BOLD, DIM, RESET = "\x1b[1m", "\x1b[2m", "\x1b[0m"


class DemoFailed(Exception):
    """A command of the demo did not behave as it should; the message says which one and how."""


@dataclass
class Screen:
    """Prints headings with elapsed time, and runs commands in ``folder`` with their real output."""

    folder: Path
    environment: Mapping[str, str]
    started: float = field(default_factory=time.monotonic)
    is_plain: bool = field(default_factory=lambda: not sys.stdout.isatty() or "NO_COLOR" in os.environ)

    def heading(self, text: str) -> None:
        """Print what comes next."""
        mark = f"[{time.monotonic() - self.started:5.1f}s]"
        print(f"\n{self._styled(DIM, mark)} {self._styled(BOLD, text)}", flush=True)

    def prompt(self, command: str) -> None:
        """Print a command as it was typed."""
        print(f"{self._styled(DIM, '$')} {command}", flush=True)

    def show(self, text: str) -> None:
        """Print the output of a command that has run."""
        print(text.rstrip("\n"), flush=True)

    def run(self, *argv: str, expect: int = 0) -> None:
        """Run a command visibly; ``DemoFailed`` if it ends with a status other than ``expect``."""
        self.prompt(shlex.join(argv))
        code = subprocess.run(argv, cwd=self.folder, env=dict(self.environment), check=False).returncode
        if code != expect:
            raise DemoFailed(f"{shlex.join(argv)} ended with {code}, not {expect}")

    def on_node(self, name: str, done: subprocess.CompletedProcess[str], command: Sequence[str]) -> None:
        """Print a command that ran on a node over ssh, with what it printed."""
        self.prompt(f"ssh {name} {shlex.join(command)}")
        self.show(done.stdout + done.stderr)

    def _styled(self, style: str, text: str) -> str:
        return text if self.is_plain else f"{style}{text}{RESET}"
