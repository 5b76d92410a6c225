"""Measures a first run: `make demo` and `make cluster` in a fresh clone of what is committed, with an empty cache.

Prints every line that says what is done, with the time since `make` was called, and the whole of each. Packages of the
machine and modules of Go that are there already are not fetched again. It keeps all cores busy: a quarter of an hour,
more than an hour with `test`. `make bench` leaves it out.

Run: python3 bench/nodes/cold.py [demo] [cluster] [test]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CHECKOUT = Path(__file__).resolve().parents[2]
VERBS = ("demo", "cluster")
UNDONE_BY = {"cluster": "cluster-down"}


def measure(verb: str, folder: Path) -> int:
    """Run `make VERB` in a clone of its own and show what took how long; return its status."""
    clone = folder / "clone"
    subprocess.run(["git", "clone", "--quiet", str(CHECKOUT), str(clone)], check=True)
    own = {"XDG_CACHE_HOME": str(folder / "cache"), "XDG_STATE_HOME": str(folder / "state")}
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "UV"}} | own
    command = ["make", "--silent", verb]
    print(f"\n== {' '.join(command)}", flush=True)
    try:
        with subprocess.Popen(command, cwd=clone, env=environment, stdout=subprocess.PIPE, text=True) as process:
            for line in steps(process.stdout or (), time.monotonic):
                print(line, flush=True)
    finally:
        if verb in UNDONE_BY:
            subprocess.run(["make", "--silent", UNDONE_BY[verb]], cwd=clone, env=environment, check=True)
    return process.returncode


def steps(lines: Iterable[str], clock: Callable[[], float]) -> Iterable[str]:
    """Yield the lines that say what is done, each with the seconds until it came; at last all seconds."""
    began = clock()
    for line in lines:
        if line.startswith("["):
            yield f"{clock() - began:7.1f} s  {line.partition('] ')[2].rstrip()}"
    yield f"{clock() - began:7.1f} s  in all"


def main() -> int:
    """Measure one after the other, each with a cache of its own; exit status 0, or that of the first that failed."""
    parser = argparse.ArgumentParser(prog="cold", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("verbs", nargs="*", metavar="VERB", help=f"of make; without any, {' and '.join(VERBS)}")
    for verb in parser.parse_args().verbs or VERBS:
        with tempfile.TemporaryDirectory(prefix="grapnel-cold-") as folder:
            if status := measure(verb, Path(folder)):
                return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
