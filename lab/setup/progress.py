"""One line per step with elapsed time; the full output of a step goes to a log that is shown when it fails."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lab.setup.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

TAIL_LINES = 25
HEARTBEAT_S = 15.0  # without a terminal: a line now and then shows that a long step is alive
REDRAW_S = 0.5


@dataclass
class Progress:
    """Prints steps to ``stream`` with the seconds since it was made; keeps each step's output in ``log_dir``."""

    log_dir: Path
    started: float = field(default_factory=time.monotonic)

    def elapsed_s(self) -> float:
        """Seconds since the first step could begin."""
        return time.monotonic() - self.started

    def say(self, text: str) -> None:
        """Print one finished line."""
        clear = "\r\x1b[K" if sys.stdout.isatty() else ""
        print(f"{clear}[{self.elapsed_s():6.1f}s] {text}", flush=True)

    def transient(self, text: str) -> None:
        """Redraw the current line on a terminal; elsewhere print nothing."""
        if sys.stdout.isatty():
            width = os.get_terminal_size().columns - 1
            line = f"[{self.elapsed_s():6.1f}s] {text}".replace("\t", " ")
            print(f"\r\x1b[K{line[:width]}", end="", flush=True)

    def run(
        self, title: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None, stream: bool = False
    ) -> None:
        """Run ``argv`` as a step; raise ``SetupError`` with the end of its output if it fails.

        ``stream`` passes the output through instead: for commands whose output is the point (tests, the demo).
        """
        merged = {**os.environ, **(env or {})}
        if stream:
            self.say(f"{title}: {' '.join(argv)}")
            code = subprocess.run(argv, env=merged, check=False).returncode
            if code:
                raise SetupError(f"{title} failed (exit {code})")
            return
        log = self.log_dir / f"{title.replace(' ', '-').replace('/', '-')}.log"
        begun = time.monotonic()
        code = self._watch(title, argv, merged, log)
        if code:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-TAIL_LINES:])
            raise SetupError(f"{title} failed (exit {code}); end of {log}:\n{tail}")
        self.say(f"{title}: done in {time.monotonic() - begun:.1f}s")

    def _watch(self, title: str, argv: Sequence[str], env: Mapping[str, str], log: Path) -> int:
        """Run the command with its output in ``log``, keep the terminal line alive, return the exit status."""
        log.parent.mkdir(parents=True, exist_ok=True)
        last_beat = time.monotonic()
        self.transient(f"{title} …")
        with log.open("wb") as out, _child(argv, env, out) as child:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return child.wait(timeout=REDRAW_S)
                self.transient(f"{title}: {_last_line(log)}")
                if not sys.stdout.isatty() and time.monotonic() - last_beat > HEARTBEAT_S:
                    last_beat = time.monotonic()
                    self.say(f"{title}: {_last_line(log)}")


@contextlib.contextmanager
def _child(argv: Sequence[str], env: Mapping[str, str], out: object) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command and end it if we are interrupted."""
    try:
        child = subprocess.Popen(  # type: ignore[call-overload]  # a binary file object is a valid stdout
            argv, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        )
    except FileNotFoundError as error:
        raise SetupError(f"{argv[0]}: no such program") from error
    try:
        yield child
    finally:
        if child.poll() is None:
            child.terminate()
            child.wait()


def _last_line(log: Path) -> str:
    """Return the last non-empty line that a step has printed so far."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "…"
