"""What the node daemon costs and how soon it notices, side by side with NVIDIA's device plugin and with floors.

Both run at the same time, each with a kubelet of its own, and are measured in turn in one process, so that load and
clock meet both alike. The driver is the laboratory's simulated NVML; a real one maps more memory into any process that
uses it. Figures go to ``history/plugin.jsonl`` and are compared with the last ones. NVIDIA's columns need root and Go.
What it takes them to prefer 2, 3 or 4 of 16 GPUs (2, 51 and 8 seconds for one call) is left out without ``--patient``.

Usage: python bench/plugin.py [--calls N] [--starts N] [--growth N] [--allocations N] [--idle-seconds S]
       [--settle-seconds S] [--stage NAME] [--patient] [--no-history] [--strict]
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.daemons import calls, events, process, verdict
from bench.daemons.subjects import OURS, THEIRS, Release, ours, running, theirs
from bench.starts import history, nvidia
from bench.starts.machine import commit, machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.daemons.subjects import Running, Subject
    from bench.starts.verdict import Line

HISTORY = Path(__file__).resolve().parent / "history/plugin.jsonl"
GPUS = 8
NVML_CALL_US = 20
SIZES = {8: range(1, 9), 16: range(1, 17), 64: (1, 2, 3, 4, 8, 13, 16, 32, 63)}
THEIR_SIZES = {8: range(1, 9), 16: (1, 8)}
THEIR_SECONDS = {16: (2, 4, 3)}  # what one call of theirs takes seconds for, soonest first
MODULES = {
    "bare python3": "pass",
    "+ ctypes, pynvml": "import pynvml",
    "+ asyncio, no ssl": "sys.modules['ssl'] = None; import asyncio",
    "+ asyncio": "import asyncio",
    "+ asyncio, h2, no ssl": "sys.modules['ssl'] = None; import asyncio, h2.connection",
    "+ asyncio, h2, pynvml": "sys.modules['ssl'] = None; import asyncio, h2.connection, pynvml",
}
START_FLOORS = ("bare python3", "+ asyncio, h2, pynvml")  # without anything, and with what cannot be left out
STAGES = ("starts", "life", "preferences", "happenings")


class Bench:
    """One run: where its nodes are, and the samples by name."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self._folder = folder
        self._options = options
        self._nodes = 0
        self.release = Release(folder / "release")
        self.program = nvidia.device_plugin() if os.geteuid() == 0 else None
        self.samples: dict[str, list[float]] = {}

    def nodes(
        self, stack: ExitStack, gpus: int = GPUS, nvml_call_us: int = 0, *, with_metrics: bool = False
    ) -> Iterator[Subject]:
        """Make a new node for each of the plugins that there are."""
        self._nodes += 1
        folder = self._folder / f"node{self._nodes}"
        yield ours(folder / "ours", self.release, gpus, nvml_call_us, with_metrics=with_metrics)
        if self.program is not None:
            yield stack.enter_context(theirs(folder / "theirs", self.program, gpus, nvml_call_us))

    def note(self, who: str, what: str, values: Sequence[float], unit: str = "ms") -> None:
        """Keep samples, and print them."""
        name = verdict.row(who, what)
        self.samples[name] = list(values)
        figures = f"min {min(values):8.3f}  p50 {median(values):8.3f}"
        if len(values) > 1:
            figures += f"  p99 {verdict.percentile_99(values):8.3f}  max {max(values):8.3f}"
        print(f"{name:52} {figures} {unit}", flush=True)

    # The stages

    def starts(self) -> None:
        """Start them in turn."""
        with ExitStack() as stack:
            subjects = list(self.nodes(stack))
            cpu: dict[str, list[float]] = {subject.name: [] for subject in subjects}
            measures = {subject.name: partial(calls.start_once, subject, cpu[subject.name]) for subject in subjects}
            floors = {f"floor: {title}": partial(self.release.time_script, MODULES[title]) for title in START_FLOORS}
            for name, taken in calls.in_rounds(floors | measures, self._options.starts, warm_up=1).items():
                if name in floors:
                    self.note(name, "start to the end", taken)
                else:
                    self.note(name, verdict.START, taken)
                    self.note(name, verdict.START_CPU, cpu[name])

    def life(self) -> None:
        """See what they cost while nothing happens, under calls, and after many; ours with metrics."""
        with ExitStack() as stack:
            subjects = self.nodes(stack, with_metrics=True)
            plugins = [stack.enter_context(running(subject)) for subject in subjects]
            self._idle(plugins)
            made = {verdict.EMPTY: calls.empty, verdict.ALLOCATE: calls.allocate}
            measures = {(plugin.subject.name, what): make(plugin) for plugin in plugins for what, make in made.items()}
            for (name, what), taken in calls.in_rounds(measures, self._options.calls).items():
                self.note(name, what, taken)
            for plugin in plugins:
                self._grow(plugin, verdict.STREAMS, events.open_stream(plugin), self._options.growth)
                self._grow(plugin, verdict.CONNECTIONS, events.connect(plugin), self._options.growth)
                self._grow(plugin, verdict.ALLOCATIONS, calls.allocate(plugin), self._options.allocations)

    def _idle(self, plugins: Sequence[Running]) -> None:
        time.sleep(self._options.settle_seconds)
        before = [(process.cpu_s(plugin.pid), process.switches(plugin.pid)) for plugin in plugins]
        time.sleep(self._options.idle_seconds)
        for plugin, (cpu_s, switches) in zip(plugins, before, strict=True):
            name, seconds = plugin.subject.name, self._options.idle_seconds
            self.note(name, verdict.IDLE_CPU, [(process.cpu_s(plugin.pid) - cpu_s) / seconds * 100], "%")
            self.note(name, verdict.WAKE_UPS, [(process.switches(plugin.pid) - switches) / seconds], "/s")
            memory = process.memory_of(plugin.pid)
            self.note(name, verdict.MEMORY_PSS, [memory.pss], "MiB")
            self.note(name, verdict.MEMORY_USS, [memory.uss], "MiB")

    def _grow(self, plugin: Running, what: str, work: Callable[[], object], rounds: int) -> None:
        growth = events.grow(plugin, work, rounds, self._options.settle_seconds)
        self.note(plugin.subject.name, what, [growth.mib], f"MiB, {growth.things:+} descriptors and threads, {rounds}")

    def preferences(self) -> None:
        """Ask for every size that can be waited for, while each call of NVML takes its time."""
        for gpus in SIZES:
            self._prefer_among(gpus)

    def _prefer_among(self, gpus: int) -> None:
        with ExitStack() as stack:
            for subject in self.nodes(stack, gpus, NVML_CALL_US):
                if subject.name == THEIRS and gpus not in THEIR_SIZES:
                    continue
                plugin = stack.enter_context(running(subject))
                if subject.name == OURS:
                    self._prefer(plugin, SIZES[gpus], self._options.calls // 20)
                else:
                    self._prefer(plugin, THEIR_SIZES[gpus], min(20, self._options.calls // 20))
                    if self._options.patient:
                        self._prefer(plugin, THEIR_SECONDS.get(gpus, ()), 1)

    def _prefer(self, plugin: Running, sizes: Sequence[int], rounds: int) -> None:
        found = calls.in_rounds(
            {verdict.preference(plugin.subject.gpus, size): calls.preferred(plugin, size) for size in sizes},
            rounds,
            warm_up=1 if rounds > 1 else 0,
        )
        for what, taken in found.items():
            self.note(plugin.subject.name, what, taken)

    def happenings(self) -> None:
        """Break GPUs, streams, kubelets and folders, and end it."""
        with ExitStack() as stack:
            for plugin in [stack.enter_context(running(subject)) for subject in self.nodes(stack)]:
                name = plugin.subject.name
                self.note(name, verdict.RESTART, [events.restart_kubelet(plugin) for _ in range(10)])
                self.note(name, verdict.HEALTH, [events.break_gpu(plugin, index) for index in range(3)])
                later = [events.break_gpu_after_broken_stream(plugin, 3)]
                if later[0] < events.NEVER_MS:
                    later += [events.break_gpu_after_broken_stream(plugin, index) for index in (4, 5)]
                self.note(name, verdict.HEALTH_LATER, later)
            for plugin in [stack.enter_context(running(subject)) for subject in self.nodes(stack)]:
                name = plugin.subject.name
                away = [events.restart_kubelet(plugin, removes_folder=True)]
                if away[0] < events.NEVER_MS:
                    away += [events.restart_kubelet(plugin, removes_folder=True) for _ in range(4)]
                self.note(name, verdict.FOLDER, away)
            for plugin in [stack.enter_context(running(subject)) for subject in self.nodes(stack)]:
                taken, is_withdrawn = events.stop(plugin)
                words = "ms, the list was empty by then" if is_withdrawn else "ms, the list was left as it was"
                self.note(plugin.subject.name, verdict.STOP, [taken], words)


def entry_of(bench: Bench, lines: Sequence[Line]) -> dict[str, Any]:
    """Return a line of the history; what never came is left out."""
    medians = {name: round(median(values), 3) for name, values in bench.samples.items()}
    return {
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%MZ"),
        "commit": commit(),
        "machine": machine(sys.executable),
        "load": round(os.getloadavg()[0], 1),
        "figures": {line.name: round(line.measured, 3) for line in lines if line.measured < events.NEVER_MS},
        "medians": {name: value for name, value in medians.items() if value < events.NEVER_MS},
    }


def keep(entry: dict[str, Any], lines: Sequence[Line], *, is_kept: bool) -> None:
    """Compare with the last time and add to the history."""
    before = history.last_of(history.read(HISTORY), entry["machine"])
    if before is not None:
        print(f"\nsince {before['date']} ({before['commit']}, load {before['load']}):")
        print("\n".join(history.compare(before, lines)))
    if is_kept:
        history.append(HISTORY, entry)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--growth", type=int, default=2000, help="streams, and connections")
    parser.add_argument("--allocations", type=int, default=100_000)
    parser.add_argument("--idle-seconds", type=float, default=60)
    parser.add_argument("--settle-seconds", type=float, default=5, help="before a look at what it has come to")
    parser.add_argument("--stage", action="append", choices=STAGES, help="this part alone; may be given several times")
    parser.add_argument("--patient", action="store_true", help="wait for NVIDIA's choice among 16 GPUs: a minute more")
    parser.add_argument("--no-history", action="store_true", help="keep nothing of this run")
    parser.add_argument("--strict", action="store_true", help="exit status 1 when a limit is exceeded")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, compare and keep."""
    options = _options(argv)
    print(f"{machine(sys.executable)}, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="grapnel-bench-") as folder:
        bench = Bench(Path(folder), options)
        if bench.program is None:
            print("not root, or go is not on PATH: nothing of NVIDIA's stands beside")
        for title, script in MODULES.items():
            print(f"floor: {title:24} {bench.release.memory_of_script(script)}")
        for stage in options.stage or STAGES:
            getattr(bench, stage)()
    lines = verdict.judge(bench.samples, OURS)
    print("\n".join(["", *map(str, lines)]))
    keep(entry_of(bench, lines), lines, is_kept=not (options.no_history or options.stage))
    return 1 if options.strict and not all(line.is_kept for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
