#!/usr/bin/python3 -IS
"""Of systemd what transient units need: systemd-run, and show and stop of systemctl. It is what it is called.

Units are noted in the folder `units` beside it; the file `calls` there has every command. A control group is a session:
what a unit's program starts stays in it, and all of it is killed when the main process has ended.
"""

from __future__ import annotations

import ctypes
import fnmatch
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

UNITS = Path(__file__).resolve().with_name("units")
MOUNT = "mount"  # is noted and not done
STOP_S = 2.0
_PR_SET_CHILD_SUBREAPER = 36


class Note(NamedTuple):
    """What is known of a unit that runs."""

    pid: int
    session: int
    environment: str


def file_of(unit: str) -> Path:
    """Return where a unit is noted."""
    return UNITS / f"{unit}.json"


def processes(session: int) -> list[int]:
    """Return the processes of a session that have not ended."""
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit():
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] not in "ZX":
                    found.append(int(folder.name))
    return found


def children() -> list[int]:
    """Return our child processes: of a daemon in the background the one that is left when its parents have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def kill_all(session: int, number: int) -> None:
    """Send a signal to all processes of a session."""
    for pid in processes(session):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def running(unit: str) -> Note | None:
    """Return the note of a unit that runs; one whose main process ended is forgotten, and what it left is killed."""
    try:
        note = Note(*json.loads(file_of(unit).read_text()))
    except FileNotFoundError:
        return None
    if note.pid in processes(note.session):
        return note
    kill_all(note.session, signal.SIGKILL)
    with suppress(FileNotFoundError):
        file_of(unit).unlink()
    return None


def fail(words: str) -> int:
    """Print why it failed."""
    print(words, file=sys.stderr)
    return 1


def start(options: list[str], command: list[str]) -> int:
    """Do what systemd-run does."""
    if command[0] == MOUNT:
        return 0
    split = [each.partition("=") for each in options]
    unit = next(value for name, _, value in split if name == "--unit")
    properties = dict(value.partition("=")[::2] for name, _, value in split if name == "--property")
    variables = [value for name, _, value in split if name == "--setenv"]
    if running(unit):
        return fail(f"Failed to start transient service unit: Unit {unit} was already loaded or has a fragment file.")
    environment = {"PATH": "/usr/bin:/bin", **dict(each.partition("=")[::2] for each in variables)}
    timeout_s = float(properties["TimeoutStartSec"])
    before = children()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, timeout=timeout_s, check=False)
    if done.returncode:
        return fail(f"Job for {unit} failed because the control process exited with error code.")
    left = [child for child in children() if child not in before]
    if len(left) != 1:
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        return fail(f"Job for {unit} failed: {len(left)} processes are left, and none is named by a file.")
    pid = left[0]
    beside = file_of(unit).with_suffix(".new")
    beside.write_text(json.dumps(Note(pid, os.getsid(pid), " ".join(variables))))
    beside.rename(file_of(unit))
    return 0


def show(patterns: list[str]) -> int:
    """Print the properties of units that run, or were named."""
    known = [path.stem for path in UNITS.glob("*.json")]
    blocks = []
    for pattern in patterns:
        for unit in fnmatch.filter(known, pattern) if "*" in pattern else [pattern]:
            note = running(unit)
            state, pid, variables = ("active", note.pid, note.environment) if note else ("inactive", 0, "")
            blocks.append(f"Id={unit}\nActiveState={state}\nMainPID={pid}\nEnvironment={variables}")
    print("\n\n".join(blocks))
    return 0


def stop(unit: str) -> int:
    """End a unit, by SIGTERM and then by SIGKILL."""
    note = running(unit)
    if note is not None:
        for number in (signal.SIGTERM, signal.SIGCONT):
            kill_all(note.session, number)
        deadline = time.monotonic() + STOP_S
        while processes(note.session) and time.monotonic() < deadline:
            time.sleep(0.02)
        kill_all(note.session, signal.SIGKILL)
        running(unit)
    return 0


def main() -> int:
    """Run the program."""
    UNITS.mkdir(exist_ok=True)
    called, words = Path(sys.argv[0]).name, sys.argv[1:]
    with (UNITS / "calls").open("a") as file:
        file.write(json.dumps([called, *words]) + "\n")
    cut = words.index("--")
    if called == "systemd-run":
        return start(words[:cut], words[cut + 1 :])
    return show(words[cut + 1 :]) if words[0] == "show" else stop(words[cut + 1])


if __name__ == "__main__":
    sys.exit(main())
