"""Prints what goes on: one line per step, with the time since the beginning."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

HEARTBEAT_S = 30.0  # without a terminal: a line now and then shows that a long step is alive


@dataclass
class Progress:
    """Prints to standard output; ``log_dir`` is where the output of each step goes."""

    log_dir: Path
    started: float = field(default_factory=time.monotonic)
    _beaten: float = 0.0

    def elapsed_s(self) -> float:
        """Seconds since the first step could begin."""
        return time.monotonic() - self.started

    def say(self, text: str) -> None:
        """Print one finished line."""
        clear = "\r\x1b[K" if sys.stdout.isatty() else ""
        print(f"{clear}[{self.elapsed_s():6.1f}s] {text}", flush=True)
        self._beaten = self.elapsed_s()

    def show(self, text: str) -> None:
        """Print the output of a step as it is."""
        print(text, flush=True)

    def redraw(self, text: str) -> None:
        """Show what goes on at the moment: always on a terminal, elsewhere when nothing was said for a while."""
        if sys.stdout.isatty():
            width = os.get_terminal_size().columns - 1
            line = f"[{self.elapsed_s():6.1f}s] {text}".replace("\t", " ")
            print(f"\r\x1b[K{line[:width]}", end="", flush=True)
        elif self.elapsed_s() - self._beaten > HEARTBEAT_S:
            self.say(text)
