"""Measures what a person waits for: the start of `grapnel`, and plans of a large fleet, with floors and targets.

    python bench/provision.py [--nodes 5000] [--rounds 5]

CPU time of whole processes with all that they start, not time on the clock, as machines are shared; memory is the peak
of the process. What is compared alternates in each round. Nodes are recorded facts, so that none has to be booted:
`bench/nodes/apply.py` measures what needs them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.stage.figures import Spread, in_turn
from bench.stage.processes import measure

if TYPE_CHECKING:
    from collections.abc import Mapping

GRAPNEL: Final = (sys.executable, "-P", "-c", "import sys; from provision.cli import main; sys.exit(main())")
ARGPARSE: Final = "import argparse; p = argparse.ArgumentParser(); p.add_argument('x'); p.parse_args(['1'])"
TAB: Final = """
source "$1"; COMP_WORDS=(grapnel apply --pa) COMP_CWORD=2
_shtab_grapnel grapnel --pa apply; printf '%s\\n' "${COMPREPLY[@]}"
"""
STARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "python -c pass": (sys.executable, "-P", "-c", "pass"),
    "python, argparse": (sys.executable, "-P", "-c", ARGPARSE),
    "grapnel --help": (*GRAPNEL, "--help"),
    "grapnel version": (*GRAPNEL, "--version"),
    "grapnel check --help": (*GRAPNEL, "check", "--help"),
    "grapnel plan --help": (*GRAPNEL, "plan", "--help"),
}
START_LIMIT_MS: Final = 100
_TITLES: Final = "{:34} {:>20}   {}"


@dataclass(frozen=True)
class Step:
    """A step over the fleet, its name in `bench/planned/steps.py` and what it may take."""

    name: str
    title: str
    most_cpu_s: float | None = None
    most_mib: int | None = None


STEPS: Final = (
    Step("facts", "facts parsed (floor)"),
    Step("plans", "facts parsed, planned", 2.0, 200),
    Step("within-limits", "… in a process with limits"),
    Step("kept", "facts and plans kept"),
    Step("text-equal", "text, equal nodes", 1.0),
    Step("text-named", "text, problems that name the node", 1.0),
    Step("text-different", "text, all different", 1.0),
    Step("json", "JSON", None, 300),
)


def bench_starts(rounds: int) -> None:
    """Print what the start of the command costs."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "grapnel.bash")
        script.write_text(measure((*GRAPNEL, "completion", "bash")).output)
        starts = {**STARTS, "bash completes an option": ("bash", "--norc", "-c", TAB, "bash", str(script))}
        spent: dict[str, list[float]] = {name: [] for name in starts}
        for turn in range(rounds):
            for name in in_turn(tuple(starts), turn):
                spent[name].append(1000 * measure(starts[name]).cpu_s)
    print(_TITLES.format("start", "min    med    max", f"ms of CPU, {rounds} rounds"))
    for name, values in spent.items():
        spread = Spread.of(values)
        told = "" if name.startswith("python") else verdict(spread.mid, START_LIMIT_MS, "ms")
        print(_TITLES.format(name, spread.show(), told))


def bench_plans(nodes: int, rounds: int) -> None:
    """Print what plans of a fleet cost, and their text and JSON."""
    print(_TITLES.format(f"\n{nodes} nodes", "CPU s   peak MiB", f"median of {rounds} rounds"))
    for step in STEPS:
        command = (sys.executable, "-m", "bench.planned.steps", step.name, str(nodes))
        costs = [measure(command) for _ in range(rounds)]
        cpu = Spread.of(float(cost.output) for cost in costs).mid
        peak = Spread.of(cost.peak_mib for cost in costs).mid
        told = [verdict(cpu, step.most_cpu_s, "s"), verdict(peak, step.most_mib, "MiB")]
        print(_TITLES.format(step.title, f"{cpu:8.2f} {peak:10.0f}", ", ".join(filter(None, told))))


def verdict(value: float, most: float | None, unit: str) -> str:
    """Return whether a figure keeps its target, empty without one."""
    if most is None:
        return ""
    return f"{'within' if value <= most else 'MORE THAN'} {most:g} {unit}"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="the start of grapnel, and plans of a large fleet")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    bench_starts(args.rounds)
    bench_plans(args.nodes, max(1, args.rounds // 2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
