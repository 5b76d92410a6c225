"""What the hook costs per container start, side by side with a bare interpreter and with a runtime that has no hook.

Rows, in rotated order every round so that load and clock changes meet all alike: the interpreter alone (the floor),
the hook on a container that asks for nothing, on one whose image says ``all`` without an allocation; and the runtime
without a hook, with a hook that leaves early, and with one that gives a GPU everything. Wall time and CPU time
(children included) as min/med/max, and ratios to the floor. Needs root, runc, gcc and busybox-static.

Usage: python bench/hook.py [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.runtime_hook.containers import HOOK, Container, make_root
from tests.runtime_hook.drivertree import DriverTree

if TYPE_CHECKING:
    from collections.abc import Callable

PYTHON = ["/usr/bin/python3", "-I", "-S"]
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
ALLOCATED = [("/dev/nvidiactl", 62), ("/dev/nvidia-uvm", 60), ("/dev/nvidia0", 16)]
FLOOR, EARLY = "python3 -I -S -c pass", "hook: no GPU asked for"
NO_HOOK = "runc, no hook"
WARM_UP = 3


class Scene:
    """One driver tree, one hook installation with compiled modules, containers made anew for every start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        objects = folder / "objects"
        objects.mkdir()
        self.driver = DriverTree(folder / "host", objects).build()
        self.pristine = make_root(folder / "pristine")
        config = folder / "hook.json"
        config.write_text(json.dumps({"inventory": str(folder / "inventory.json"), "log": "none"}))
        self.arguments = ["--config", str(config), "--root", str(self.driver.root)]
        subprocess.run([*PYTHON, str(HOOK), "--version"], check=True, stdout=subprocess.DEVNULL)
        self.count = 0

    def bundle(self, *, environment: list[str], devices: list[tuple[str, int]], with_hook: bool = True) -> Container:
        """Make a container with a root of its own."""
        self.count += 1
        root = self.folder / f"root{self.count}"
        shutil.copytree(self.pristine, root, symlinks=True)
        made = Container(
            self.folder / f"bundle{self.count}",
            root,
            ["/bin/busybox", "true"],
            hook_arguments=self.arguments,
            environment=environment,
            devices=devices,
            with_hook=with_hook,
        )
        made.write()
        return made

    def discard(self, container: Container) -> None:
        """Remove a container's root and bundle."""
        shutil.rmtree(container.root)
        shutil.rmtree(container.folder)

    def direct(self, environment: list[str]) -> tuple[float, float]:
        """Start the hook by itself, as the runtime would, for a container that gets nothing."""
        made = self.bundle(environment=environment, devices=[])
        state = json.dumps({"ociVersion": "1.0.2", "id": "bench", "pid": os.getpid(), "bundle": str(made.folder)})
        result = measure([*PYTHON, str(HOOK), "prestart", *self.arguments], state)
        self.discard(made)
        return result

    def start(self, *, devices: list[tuple[str, int]], with_hook: bool = True) -> tuple[float, float]:
        """Run a container to its end."""
        made = self.bundle(environment=[], devices=devices, with_hook=with_hook)
        name = f"grapnel-bench-{os.getpid()}-{self.count}"
        argv = ["runc", "--root", str(self.folder / "state"), "run", "--bundle", str(made.folder), name]
        result = measure(argv)
        self.discard(made)
        return result


def measure(argv: list[str], stdin: str = "") -> tuple[float, float]:
    """Return wall and CPU milliseconds of one command and everything it started."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(argv, input=stdin, text=True, capture_output=True, check=False, env=ENVIRONMENT)
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{argv[0]} failed: {done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall * 1000, cpu * 1000


def rows(scene: Scene) -> dict[str, Callable[[], tuple[float, float]]]:
    """Return what is measured, by name."""
    return {
        FLOOR: lambda: measure([*PYTHON, "-c", "pass"]),
        EARLY: lambda: scene.direct([]),
        "hook: image says all, not entitled": lambda: scene.direct(["NVIDIA_VISIBLE_DEVICES=all"]),
        NO_HOOK: lambda: scene.start(devices=ALLOCATED, with_hook=False),
        "runc, hook, no GPU": lambda: scene.start(devices=[]),
        "runc, hook, one GPU given": lambda: scene.start(devices=ALLOCATED),
    }


def spread(figures: list[float]) -> str:
    """Return min/med/max."""
    ordered = sorted(figures)
    return f"{ordered[0]:7.1f}/{ordered[len(ordered) // 2]:6.1f}/{ordered[-1]:6.1f}"


def median(figures: list[float]) -> float:
    """Return the middle figure."""
    return sorted(figures)[len(figures) // 2]


def show(samples: dict[str, list[tuple[float, float]]]) -> None:
    """Print the table and the ratios that count."""
    floor = median([cpu for _, cpu in samples[FLOOR]])
    no_hook = median([cpu for _, cpu in samples[NO_HOOK]])
    print(f"{'ms: min/med/max':38} {'wall':>22} {'CPU':>22}   CPU to floor   CPU over {NO_HOOK}")
    for name, pairs in samples.items():
        walls, cpus = [wall for wall, _ in pairs], [cpu for _, cpu in pairs]
        over = f"{median(cpus) - no_hook:+.1f}" if name.startswith("runc") else ""
        print(f"{name:38} {spread(walls):>22} {spread(cpus):>22}   {median(cpus) / floor:12.2f}   {over:>10}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="grapnel-bench-") as folder:
        measured = rows(Scene(Path(folder)))
        names = list(measured)
        samples: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
        for number in range(rounds + WARM_UP):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                result = measured[name]()
                if number >= WARM_UP:
                    samples[name].append(result)
    print(f"{rounds} rounds, load {os.getloadavg()[0]:.1f}, hook under {PYTHON[0]}")
    show(samples)


if __name__ == "__main__":
    main()
