"""How long hook and node daemon take to start on each Python that a node's system may have, beside the bare one.

The hook is asked by a container that wants nothing, which is most of them; the daemon has started when a kubelet has
its list of GPUs. Every round starts each of them once, in another order.

Usage: python bench/starts/interpreters.py [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.daemons import calls
from bench.daemons.subjects import Release, ours
from bench.starts import bundles
from bench.starts.measuring import measure
from lab.machine.pythons import MINORS, find_python
from tests.runtime_hook.releases import install_release

if TYPE_CHECKING:
    from collections.abc import Callable

GPUS = 8
DAEMON_FROM = 10


def rows(folder: Path, minor: int, python: Path, cpu: dict[str, list[float]]) -> dict[str, Callable[[], float]]:
    """Return what is measured on one interpreter, by name; what each took of processors goes to `cpu`."""
    hook = install_release(folder / "hook", python=str(python))
    bundles.write(folder / "asks-nothing", bundles.plain(folder))
    state = {"ociVersion": "1.0.2", "id": "bench", "pid": os.getpid(), "bundle": str(folder / "asks-nothing")}
    settings = folder / "hook.json"
    settings.write_text(json.dumps({"inventory": str(folder / "inventory.json"), "log": "none"}))

    def run(name: str, command: list[str]) -> float:
        cost = measure(command, json.dumps(state).encode())
        cpu.setdefault(name, []).append(cost.cpu)
        return cost.wall

    commands = {
        f"python3.{minor} -IS -c pass": [str(python), "-IS", "-c", "pass"],
        f"hook on 3.{minor}": [str(hook), "prestart", "--config", str(settings)],
    }
    found: dict[str, Callable[[], float]] = {name: partial(run, name, command) for name, command in commands.items()}
    if minor >= DAEMON_FROM:
        daemon, name = ours(folder / "daemon", Release(folder / "release", python), GPUS), f"daemon on 3.{minor}"
        found[name] = partial(calls.start_once, daemon, cpu.setdefault(name, []))
    return found


def main() -> int:
    """Measure and print; exit status 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    found = {minor: python for minor in MINORS if (python := find_python(minor))}
    if absent := [f"3.{minor}" for minor in MINORS if minor not in found]:
        print(f"this machine has no Python {', '.join(absent)}")
    with tempfile.TemporaryDirectory(prefix="grapnel-bench-") as place:
        measures: dict[str, Callable[[], float]] = {}
        cpu: dict[str, list[float]] = {}
        for minor, python in found.items():
            measures |= rows(Path(place) / f"3.{minor}", minor, python, cpu)
        taken = calls.in_rounds(measures, options.rounds, warm_up=1)
    print(f"{'ms to start':24} {'min':>7} {'p50':>7} {'max':>7} {'CPU p50':>9}")
    for name, values in taken.items():
        print(f"{name:24} {min(values):7.1f} {median(values):7.1f} {max(values):7.1f} {median(cpu[name]):9.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
