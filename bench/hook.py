"""What the hook costs per container start, side by side with NVIDIA's hooks, with no hook, and with a bare interpreter.

Every round starts each of them once, in another order, so that load and clock changes meet all alike. Containers are
``busybox true`` under runc, each on a fresh overlay: of a small image, and of one with 1,585 names in its loader
cache. The hook is installed and packed as on a node. Figures go to ``history/hook.jsonl`` and are compared with the
last ones. Needs root, runc, gcc, busybox-static; NVIDIA's rows need Go.

Usage: python bench/hook.py [--rounds N] [--restarts N] [--no-history] [--strict]
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import sys
import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.stage.figures import Spread, in_turn
from bench.starts import bundles, history, images, nvidia, verdict
from bench.starts.driver import GPUS, build_driver
from bench.starts.machine import commit, machine
from bench.starts.measuring import Cost, build_peak_wrapper, measure, read_peaks
from runtime_hook.commands.explain import Sources, explain
from tests.runtime_hook.releases import PYTHON, install_release

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Configure = Callable[[dict[str, Any]], None]

HERE = Path(__file__).resolve().parent
HISTORY = HERE / "history/hook.jsonl"
WARM_UP = 3
PEAK_ROUNDS = 5
# All but 32-bit libraries, which NVIDIA's specification does not have either.
CAPABILITIES = ["compute", "utility", "video", "graphics", "display", "ngx"]


class Scene:
    """One host: its driver tree, its hook, and NVIDIA's specification for it where Go is present."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        build_driver(folder / "host")
        self.hook = install_release(folder / "hook")
        settings = folder / "hook.json"
        content = {"inventory": str(folder / "inventory.json"), "log": "none"}
        settings.write_text(json.dumps({**content, "supportedDriverCapabilities": CAPABILITIES}))
        self.arguments = ["--config", str(settings), "--root", str(folder / "host")]
        self.images = {name: images.image(name) for name in images.ENTRIES}
        programs = nvidia.tools()
        self.specification = nvidia.generate(programs, folder / "host") if programs else None
        self.count = 0

    def variants(self) -> dict[str, Configure]:
        """Return what is done to a container's configuration, by name."""
        found: dict[str, Configure] = {
            verdict.NO_HOOK: lambda _: None,
            "our hook, nothing asked": self._with_ours(0),
            verdict.OURS: self._with_ours(1),
            verdict.OURS_ALL: self._with_ours(GPUS),
        }
        if self.specification is not None:
            found[verdict.OURS_SAME] = self._with_ours(1, has_every_capability=True)
            found["NVIDIA's edits, no hook"] = self._with_theirs(["0"], with_hooks=False)
            found[verdict.THEIRS] = self._with_theirs(["0"])
            found["NVIDIA, 8 GPUs"] = self._with_theirs([str(index) for index in range(GPUS)])
        return found

    def _with_ours(self, gpus: int, *, has_every_capability: bool = False) -> Configure:
        def configure(config: dict[str, Any]) -> None:
            if gpus:
                bundles.with_gpus(config, gpus)
            if has_every_capability:
                bundles.with_every_capability(config)
            bundles.with_hook(config, self.hook, self.arguments)

        return configure

    def _with_theirs(self, devices: list[str], *, with_hooks: bool = True) -> Configure:
        edits = nvidia.edits_of(self.specification or {}, devices)
        return partial(bundles.with_edits, edits=edits, with_hooks=with_hooks)

    def check_same_files(self) -> int:
        """Return how many files both mount where every capability is asked for; SystemExit if they differ."""
        config = bundles.plain(self.images["small"])
        self.variants()[verdict.OURS_SAME](config)
        bundles.write(self.folder / "explained", config)
        _, settings, _, root = self.arguments
        told: Any = explain(Sources(str(self.folder / "explained"), config_path=settings, driver_root=root))
        binds = (words for words in told["operations"] if words.startswith("bind "))
        ours = {words.partition(" on ")[2].partition(",")[0] for words in binds}
        theirs = nvidia.mounted(nvidia.edits_of(self.specification or {}, ["0"]))
        if ours != theirs:
            raise SystemExit(f"not the same files are mounted: {sorted(ours ^ theirs)}")
        return len(ours)

    @contextmanager
    def root(self, image: str) -> Iterator[Path]:
        """Give a container a fresh root."""
        with images.fresh_root(self.images[image], self.folder) as root:
            yield root

    def start(self, root: Path, configure: Configure) -> Cost:
        """Run a container on a root to its end."""
        self.count += 1
        config = bundles.plain(root)
        configure(config)
        bundles.write(self.folder / "bundle", config)
        name = f"grapnel-bench-{os.getpid()}-{self.count}"
        bundle = str(self.folder / "bundle")
        return measure(["runc", "--root", str(self.folder / "state"), "run", "--bundle", bundle, name])

    def start_afresh(self, image: str, configure: Configure) -> Cost:
        """Run a container on a fresh root."""
        with self.root(image) as root:
            return self.start(root, configure)

    def start_hook_alone(self) -> Cost:
        """Start the hook as a runtime would, for a container that asks for nothing."""
        bundles.write(self.folder / "asks-nothing", bundles.plain(self.folder))
        state = {"ociVersion": "1.0.2", "id": "bench", "pid": os.getpid(), "bundle": str(self.folder / "asks-nothing")}
        return measure([str(self.hook), "prestart", *self.arguments], json.dumps(state).encode())


def rows(scene: Scene) -> dict[str, Callable[[], Cost]]:
    """Return everything that is measured, by name."""
    found: dict[str, Callable[[], Cost]] = {
        verdict.BARE: lambda: measure([PYTHON, "-I", "-S", "-c", "pass"]),
        verdict.EARLY: scene.start_hook_alone,
    }
    for image in scene.images:
        for name, configure in scene.variants().items():
            found[verdict.row(image, name)] = partial(scene.start_afresh, image, configure)
    return found


def sample(measured: dict[str, Callable[[], Cost]], rounds: int) -> dict[str, list[Cost]]:
    """Measure all of them in turn, so many rounds."""
    samples: dict[str, list[Cost]] = {name: [] for name in measured}
    for number in range(rounds + WARM_UP):
        for name in in_turn(list(measured), number):
            cost = measured[name]()
            if number >= WARM_UP:
                samples[name].append(cost)
    return samples


def peaks(scene: Scene, configure: Configure) -> dict[str, float]:
    """Return the peak memory of each hook process of a start, in MiB."""
    log = scene.folder / "peaks"
    log.unlink(missing_ok=True)
    wrapper = build_peak_wrapper(scene.folder)

    def with_wrapper(config: dict[str, Any]) -> None:
        configure(config)
        bundles.watched(config, wrapper, log)

    for _ in range(PEAK_ROUNDS):
        scene.start_afresh("big", with_wrapper)
    found: dict[str, float] = {}
    for name, mib in read_peaks(log):
        found[name] = max(mib, found.get(name, 0.0))
    return found


def show_growth(scene: Scene, restarts: int) -> bool:
    """Start one container again and again on one root; say what its layer holds then, and whether ours grew."""
    has_grown = False
    for name in (verdict.OURS, verdict.THEIRS):
        configure = scene.variants().get(name)
        if configure is None:
            continue
        with scene.root("small") as root:
            scene.start(root, configure)
            before = images.written(root)
            for _ in range(restarts):
                scene.start(root, configure)
            after = images.written(root)
        print(f"{name:20} files, bytes in the layer: {before} after one start, {after} after {restarts} more")
        has_grown |= name == verdict.OURS and after > before
    return has_grown


def show(samples: dict[str, list[Cost]]) -> None:
    """Print the table."""
    print(f"{'ms: min med max':39} {'wall':>23} {'CPU':>23}   CPU over no hook")
    for name, costs in samples.items():
        wall, cpu = (Spread.of(figures) for figures in zip(*((cost.wall, cost.cpu) for cost in costs), strict=True))
        image, _, variant = name.partition(": ")
        is_start = image in images.ENTRIES and variant != verdict.NO_HOOK
        over = f"{verdict.added_cpu(samples, image, variant):+8.1f}" if is_start else ""
        print(f"{name:39} {wall.show(1, 7)} {cpu.show(1, 7)}   {over}".rstrip())


def entry_of(lines: list[verdict.Line], samples: dict[str, list[Cost]], rounds: int) -> dict[str, Any]:
    """Return a line of the history."""
    medians = {
        name: [round(median(cost.wall for cost in costs), 2), round(median(cost.cpu for cost in costs), 2)]
        for name, costs in samples.items()
    }
    return {
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%MZ"),
        "commit": commit(),
        "machine": machine(PYTHON),
        "load": round(os.getloadavg()[0], 1),
        "rounds": rounds,
        "figures": {line.name: round(line.measured, 3) for line in lines},
        "medians_wall_cpu_ms": medians,
    }


def main() -> int:
    """Measure, print, compare and keep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--restarts", type=int, default=100)
    parser.add_argument("--no-history", action="store_true", help="keep nothing of this run")
    parser.add_argument("--strict", action="store_true", help="exit status 1 when a budget is exceeded")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="grapnel-bench-") as folder:
        scene = Scene(Path(folder))
        if scene.specification is None:
            print("go is not on PATH: nothing of NVIDIA's stands beside")
        else:
            print(f"with every capability both mount the same {scene.check_same_files()} files")
        samples = sample(rows(scene), options.rounds)
        print(f"{options.rounds} rounds, load {os.getloadavg()[0]:.1f}, {machine(PYTHON)}")
        show(samples)
        memory = {
            name: peaks(scene, scene.variants()[name])
            for name in (verdict.OURS, verdict.THEIRS)
            if name in scene.variants()
        }
        for name, found in memory.items():
            print(f"peak MiB, {name}: " + ", ".join(f"{process} {mib:.1f}" for process, mib in found.items()))
        has_grown = show_growth(scene, options.restarts)
    lines = verdict.judge(samples, max(memory[verdict.OURS].values()))
    print("\n".join(map(str, lines)))
    keep(entry_of(lines, samples, options.rounds), lines, is_kept=not options.no_history)
    is_within = all(line.is_kept for line in lines) and not has_grown
    return 1 if options.strict and not is_within else 0


def keep(entry: dict[str, Any], lines: list[verdict.Line], *, is_kept: bool) -> None:
    """Compare with the last time and add to the history."""
    before = history.last_of(history.read(HISTORY), entry["machine"])
    if before is not None:
        print(f"\nsince {before['date']} ({before['commit']}, load {before['load']}):")
        print("\n".join(history.compare(before, lines)))
    if is_kept:
        history.append(HISTORY, entry)


if __name__ == "__main__":
    sys.exit(main())
